package txnsession_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ktxn/ktxn/txnsession"
)

var (
	_ driver.Valuer = txnsession.PreparedTxn{}
	_ sql.Scanner   = (*txnsession.PreparedTxn)(nil)
)

func drawPrepared(rt *rapid.T) txnsession.PreparedTxn {
	p := txnsession.PreparedTxn{
		TransactionalID:    rapid.StringN(1, 40, -1).Draw(rt, "id"),
		ProducerID:         rapid.Int64Min(0).Draw(rt, "producer id"),
		ProducerEpoch:      rapid.Int16Min(0).Draw(rt, "epoch"),
		TransactionVersion: rapid.Int16Range(-1, 3).Draw(rt, "version"),
		StartMillis:        rapid.Int64Min(0).Draw(rt, "start"),
		Empty:              rapid.Bool().Draw(rt, "empty"),
	}
	if rapid.Bool().Draw(rt, "witness") {
		p.Witness = txnsession.Witness{
			Topic: rapid.StringN(1, 20, -1).Draw(rt, "topic"), Partition: rapid.Int32Min(0).Draw(rt, "partition"),
			Offset: rapid.Int64Min(0).Draw(rt, "offset"),
		}
		copy(p.Witness.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "topic id"))
	}
	return p
}

func TestPreparedTxnRoundTrips(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPrepared(rt)
		back, err := txnsession.ParsePreparedTxn(p.String())
		require.NoError(rt, err)
		require.Equal(rt, p, back)

		js, err := json.Marshal(map[string]txnsession.PreparedTxn{"x": p})
		require.NoError(rt, err)
		var m map[string]txnsession.PreparedTxn
		require.NoError(rt, json.Unmarshal(js, &m))
		require.Equal(rt, p, m["x"])

		v, err := p.Value()
		require.NoError(rt, err)
		for _, src := range []any{v, []byte(v.(string))} {
			var scanned txnsession.PreparedTxn
			require.NoError(rt, scanned.Scan(src))
			require.Equal(rt, p, scanned)
		}

		state, err := txnsession.ParsePreparedState(p.TransactionalID, p.PreparedState())
		require.NoError(rt, err)
		require.Equal(rt, p.ProducerID, state.ProducerID)
		require.Equal(rt, p.ProducerEpoch, state.ProducerEpoch)
		require.Equal(rt, int16(-1), state.TransactionVersion)
	})
}

// The text form is stored by users: it must not change.
func TestPreparedTxnTextIsStable(t *testing.T) {
	p := txnsession.PreparedTxn{
		TransactionalID: "orders:0", ProducerID: 4711, ProducerEpoch: 3, TransactionVersion: 2, StartMillis: 1796048110030,
		Witness: txnsession.Witness{Topic: "out", TopicID: [16]byte{0: 0xab, 15: 1}, Partition: 2, Offset: 99},
	}
	const text = "ktxn1:4711:3:2:1796048110030::b3V0,ab000000000000000000000000000001,2,99:orders:0"
	require.Equal(t, text, p.String())
	back, err := txnsession.ParsePreparedTxn(text)
	require.NoError(t, err)
	require.Equal(t, p, back)
	require.Equal(t, "4711:3", p.PreparedState())
	empty := txnsession.PreparedTxn{TransactionalID: "a", ProducerID: 1, Empty: true}
	require.Equal(t, "ktxn1:1:0:0:0:e::a", empty.String())
}

func TestParsePreparedTxnRefuses(t *testing.T) {
	for _, s := range []string{
		"", "ktxn1", "ktxn2:1:0:0:0:::a", "ktxn1:1:0:0:0:::", "ktxn1:x:0:0:0:::a", "ktxn1:1:99999:0:0:::a", "ktxn1:1:0:0:0:z::a",
		"ktxn1:-1:0:0:0:::a", "ktxn1:1:-1:0:0:::a", "ktxn1:1:0:0:0::b3V0,ab,2,99:a", "ktxn1:1:0:0:0::x:a", "ktxn1:1:0:0:0::,00000000000000000000000000000000,1,1:a",
		"ktxn1:1:0:0:0::b3V0,ab000000000000000000000000000001,x,y:a",
	} {
		_, err := txnsession.ParsePreparedTxn(s)
		require.Error(t, err, s)
		var p txnsession.PreparedTxn
		require.Error(t, p.UnmarshalText([]byte(s)))
		require.Zero(t, p, "an error leaves the value alone")
	}
	for _, s := range []string{"", "1", ":", "1:", ":1", "-1:0", "1:-1", "1:99999", "x:y"} {
		_, err := txnsession.ParsePreparedState("id", s)
		require.Error(t, err, s)
	}
	_, err := txnsession.ParsePreparedState("", "1:1")
	require.ErrorIs(t, err, txnsession.ErrEmptyID)
	require.Error(t, new(txnsession.PreparedTxn).Scan(7))
}

func FuzzParsePreparedTxn(f *testing.F) {
	f.Add("ktxn1:4711:3:2:1796048110030::b3V0,ab000000000000000000000000000001,2,99:orders:0")
	f.Add("ktxn1:1:0:0:0:e::a")
	f.Add("4711:3")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := txnsession.ParsePreparedTxn(s); err == nil {
			back, err := txnsession.ParsePreparedTxn(p.String())
			require.NoError(t, err)
			require.Equal(t, p, back)
		}
		if p, err := txnsession.ParsePreparedState("id", s); err == nil {
			_, err := txnsession.ParsePreparedState("id", p.PreparedState())
			require.NoError(t, err)
		}
	})
}
