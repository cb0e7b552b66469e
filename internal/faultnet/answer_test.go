package faultnet_test

import (
	"io"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

// answerTo lets the network answer req with code, and decodes what it said.
func answerTo(t *testing.T, req kmsg.Request, code int16, opts ...func(*faultnet.Net)) kmsg.Response {
	t.Helper()
	nw, client, _ := pipe(t)
	defer nw.Close()
	for _, opt := range opts {
		opt(nw)
	}
	f := forever(faultnet.Answer)
	f.Code = code
	inj := nw.Inject(f)
	_, err := client.Write(frameOf(7, req))
	require.NoError(t, err)
	require.NoError(t, inj.Err(), "%s v%d", kmsg.NameForKey(req.Key()), req.GetVersion())
	corr, body := readFrame(t, client)
	require.EqualValues(t, 7, corr)
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		require.Zero(t, body[0])
		body = body[1:]
	}
	if resp.Key() == apiVersionsKey && code == 35 {
		resp.SetVersion(0)
	}
	require.NoError(t, resp.ReadFrom(body), "%s v%d", kmsg.NameForKey(req.Key()), req.GetVersion())
	again := resp.AppendTo(nil)
	require.Equal(t, again, body, "%s v%d: bytes left over", kmsg.NameForKey(req.Key()), req.GetVersion())
	return resp
}

// places lists the paths of the ErrorCode fields below v that have the code.
func places(v reflect.Value, path string, code int16) []string {
	var found []string
	switch v.Kind() {
	case reflect.Pointer:
		return places(v.Elem(), path, code)
	case reflect.Slice:
		for i := range v.Len() {
			found = append(found, places(v.Index(i), path, code)...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case f.Name == "ErrorCode" && v.Field(i).Int() == int64(code):
				found = append(found, path)
			case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
				found = append(found, places(v.Field(i), path+"/"+f.Name, code)...)
			}
		}
	}
	return found
}

// fill gives every slice of a request one element, and every name a value.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		name := v.Type().Field(i).Name
		switch {
		case name == "Version" || name == "UnknownTags":
		case f.Kind() == reflect.Struct:
			fill(f)
		case f.Kind() == reflect.String:
			f.SetString("x")
		case f.Type() == reflect.TypeFor[*string]():
			f.Set(reflect.ValueOf(kmsg.StringPtr("x")))
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct:
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			el := reflect.New(f.Type().Elem())
			el.MethodByName("Default").Call(nil)
			fill(el.Elem())
			f.Set(reflect.Append(f, el.Elem()))
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.String:
			f.Set(reflect.ValueOf([]string{"x", "y"}))
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Int32:
			f.Set(reflect.ValueOf([]int32{3, 4}))
		case name == "Acks":
			f.SetInt(-1)
		}
	}
}

func TestAnswerIsWellFormedForEveryKeyAndVersion(t *testing.T) {
	const code = 51
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		probe := kmsg.RequestForKey(key)
		if probe == nil {
			continue
		}
		for version := int16(0); version <= probe.MaxVersion(); version++ {
			switch {
			case key == 7 && version == 0:
				continue // ControlledShutdown v0 has a header of its own
			case key == 34, key == 35 && version < 3:
				continue // answers in other terms than those of the request
			}
			req := kmsg.RequestForKey(key)
			fill(reflect.ValueOf(req).Elem())
			req.SetVersion(version)
			resp := answerTo(t, req, code)
			require.NotEmpty(t, places(reflect.ValueOf(resp), "", code), "%s v%d", kmsg.NameForKey(key), version)
		}
	}
}

func TestAnswerPutsTheCodeWhereTheProtocolHasIt(t *testing.T) {
	parts := []string{"/Topics/Partitions", "/Topics/Partitions"}
	top := []string{""}
	for _, c := range []struct {
		key, version, code int16
		want               []string
	}{
		{0, 13, 6, []string{"/Topics/Partitions"}},
		{1, 18, 6, []string{"/Topics/Partitions"}},
		{1, 18, 70, top},
		{2, 11, 6, []string{"/Topics/Partitions"}},
		{3, 12, 3, []string{"/Topics"}},
		{3, 13, 3, []string{"/Topics"}},
		{8, 10, 16, []string{"/Topics/Partitions"}},
		{10, 3, 15, top},
		{10, 4, 15, []string{"/Coordinators", "/Coordinators", ""}[:2]},
		{12, 4, 25, top},
		{18, 4, 41, top},
		{18, 4, 35, top},
		{22, 5, 51, top},
		{24, 3, 51, parts},
		{25, 4, 51, top},
		{26, 5, 51, top},
		{28, 5, 51, []string{"/Topics/Partitions"}},
		{61, 0, 6, parts},
		{65, 0, 105, []string{"/TransactionStates", "/TransactionStates"}},
		{66, 2, 14, top},
		{76, 1, 110, top},
		{78, 2, 6, []string{"/Topics/Partitions"}},
		{78, 2, 122, top},
		{79, 2, 121, []string{"/Topics/Partitions"}},
		{79, 2, 123, top},
	} {
		req := kmsg.RequestForKey(c.key)
		fill(reflect.ValueOf(req).Elem())
		req.SetVersion(c.version)
		resp := answerTo(t, req, c.code)
		require.Equal(t, c.want, places(reflect.ValueOf(resp), "", c.code), "%s v%d", kmsg.NameForKey(c.key), c.version)
	}
}

func TestAnswerNamesWhatWasAsked(t *testing.T) {
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{"a", "b"}
	states := answerTo(t, describe, 105).(*kmsg.DescribeTransactionsResponse).TransactionStates
	require.Equal(t, "a", states[0].TransactionalID)
	require.Equal(t, "b", states[1].TransactionalID)

	find := at(6, kmsg.NewPtrFindCoordinatorRequest())
	find.CoordinatorKeys = []string{"a", "b"}
	coordinators := answerTo(t, find, 15).(*kmsg.FindCoordinatorResponse).Coordinators
	require.Equal(t, "b", coordinators[1].Key)
	require.EqualValues(t, -1, coordinators[1].NodeID)

	add := at(3, kmsg.NewPtrAddPartitionsToTxnRequest())
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{4, 5}}}
	topics := answerTo(t, add, 51).(*kmsg.AddPartitionsToTxnResponse).Topics
	require.Equal(t, "t", topics[0].Topic)
	require.EqualValues(t, 5, topics[0].Partitions[1].Partition)

	produce := at(13, kmsg.NewPtrProduceRequest())
	produce.Acks = -1
	produce.Topics = []kmsg.ProduceRequestTopic{{TopicID: [16]byte{9}, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 2}}}}
	answer := answerTo(t, produce, 6).(*kmsg.ProduceResponse).Topics[0]
	require.Equal(t, [16]byte{9}, answer.TopicID)
	require.EqualValues(t, 2, answer.Partitions[0].Partition)
	require.EqualValues(t, -1, answer.Partitions[0].BaseOffset)
}

func TestAnswerToMetadataKeepsTheKnownBrokers(t *testing.T) {
	w := newWorld(t, 3)
	w.net.Inject(faultnet.Fault{Key: metadataKey, Node: faultnet.Any, Action: faultnet.Answer, Code: 3})
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("topic")
	req.Topics = append(req.Topics, topic)
	resp, err := w.ask(req)
	require.NoError(t, err)
	require.Len(t, resp.(*kmsg.MetadataResponse).Brokers, 3)
	require.EqualValues(t, 3, resp.(*kmsg.MetadataResponse).Topics[0].ErrorCode)
}

func TestUnsupportedVersionOfApiVersionsIsReadable(t *testing.T) {
	w := newWorld(t, 1)
	inj := w.net.Inject(faultnet.Fault{
		Key: apiVersionsKey, Node: faultnet.Any, Action: faultnet.Answer, Code: 35,
		Match: func(r faultnet.Request) bool { return r.Version > 0 },
	})
	require.NoError(t, w.newClient().Ping(w.ctx), "the client did not find its way to an older version")
	require.Equal(t, 1, inj.Hits())
	_, err := w.last(apiVersionsKey).Decode()
	require.NoError(t, err)
}

// beat is a request that kmsg does not know.
type beat struct {
	version int16
	txn     string
}

func (*beat) Key() int16                   { return 1095 }
func (*beat) MaxVersion() int16            { return 0 }
func (b *beat) SetVersion(v int16)         { b.version = v }
func (b *beat) GetVersion() int16          { return b.version }
func (*beat) IsFlexible() bool             { return true }
func (*beat) ResponseKind() kmsg.Response  { return new(beatAnswer) }
func (b *beat) AppendTo(dst []byte) []byte { return append(kbin.AppendCompactString(dst, b.txn), 0) }
func (b *beat) ReadFrom(src []byte) error {
	r := kbin.Reader{Src: src}
	b.txn = r.CompactString()
	kmsg.SkipTags(&r)
	return r.Complete()
}

type beatAnswer struct {
	beat
	Throttle  int32
	ErrorCode int16
	Message   *string
}

func (*beatAnswer) RequestKind() kmsg.Request { return new(beat) }
func (a *beatAnswer) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt16(kbin.AppendInt32(dst, a.Throttle), a.ErrorCode)
	return append(kbin.AppendCompactNullableString(dst, a.Message), 0)
}

func (a *beatAnswer) ReadFrom(src []byte) error {
	r := kbin.Reader{Src: src}
	a.Throttle, a.ErrorCode, a.Message = r.Int32(), r.Int16(), r.CompactNullableString()
	kmsg.SkipTags(&r)
	return r.Complete()
}

func TestKeysThatKmsgDoesNotKnow(t *testing.T) {
	register := func(nw *faultnet.Net) { nw.RegisterRequest(func() kmsg.Request { return new(beat) }) }
	byHand := func(nw *faultnet.Net) {
		nw.AnswerFunc(1095, func(req faultnet.Request, code int16) []byte {
			return (&beatAnswer{ErrorCode: code, Message: kmsg.StringPtr("m")}).AppendTo(nil)
		})
	}
	got := answerTo(t, &beat{txn: "t"}, 51, register).(*beatAnswer)
	require.EqualValues(t, 51, got.ErrorCode)
	require.Nil(t, got.Message)
	for _, opts := range [][]func(*faultnet.Net){{byHand}, {register, byHand}} {
		got = answerTo(t, &beat{txn: "t"}, 51, opts...).(*beatAnswer)
		require.EqualValues(t, 51, got.ErrorCode)
		require.Equal(t, "m", *got.Message)
	}
	got = answerTo(t, &beat{txn: "t"}, 51, register, byHand, func(nw *faultnet.Net) { nw.AnswerFunc(1095, nil) }).(*beatAnswer)
	require.Nil(t, got.Message)

	nw, client, broker := pipe(t)
	register(nw)
	sendAll(client, frameOf(1, &beat{txn: "t"}))
	_, err := io.ReadFull(broker, make([]byte, len(frameOf(1, &beat{txn: "t"}))))
	require.NoError(t, err)
	req, err := nw.Log()[0].Decode()
	require.NoError(t, err)
	require.Equal(t, "t", req.(*beat).txn)
}

func TestAnswerThatCannotBeBuiltIsReported(t *testing.T) {
	for _, action := range []faultnet.Action{faultnet.Answer, faultnet.AnswerAfter, faultnet.Rewrite} {
		nw, client, _ := pipe(t)
		inj := nw.Inject(forever(action))
		_, err := client.Write(frameOf(1, &beat{txn: "t"}))
		require.NoError(t, err)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Error(t, inj.Err())
		_, err = nw.Log()[0].Decode()
		require.Error(t, err)
	}
}

func TestAnswerWithoutAPlaceForTheCodeIsReported(t *testing.T) {
	nw, client, _ := pipe(t)
	inj := nw.Inject(forever(faultnet.Answer))
	_, err := client.Write(frameOf(1, kmsg.NewPtrAlterReplicaLogDirsRequest()))
	require.NoError(t, err)
	require.NoError(t, inj.Err(), "no code was asked for")

	f := forever(faultnet.Answer)
	f.Code = 51
	inj.Remove()
	inj = nw.Inject(f)
	_, err = client.Write(frameOf(2, kmsg.NewPtrAlterReplicaLogDirsRequest()))
	require.NoError(t, err)
	require.Error(t, inj.Err())
}

func TestRewriteOfAnUnreadableAnswerIsReported(t *testing.T) {
	nw, client, broker := pipe(t)
	inj := nw.Inject(forever(faultnet.Rewrite))
	frame := frameOf(1, heartbeat("g"))
	sendAll(client, frame)
	_, err := io.ReadFull(broker, make([]byte, len(frame)))
	require.NoError(t, err)
	sendAll(broker, answerFrame(1, "\x00"))
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Error(t, inj.Err())
}

func TestRewriteKeepsItsOwnCopyOfTheRequest(t *testing.T) {
	nw, client, broker := pipe(t)
	f := forever(faultnet.Rewrite)
	var records []byte
	f.Edit = func(req kmsg.Request, _ kmsg.Response) {
		records = req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
	}
	nw.Inject(f)
	produce := at(9, kmsg.NewPtrProduceRequest())
	produce.Acks = -1
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{
		Records: []byte("records"),
	}}}}
	frame := frameOf(1, produce)
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, broker, int64(len(frame)))
		read <- err
	}()
	_, err := client.Write(frame)
	require.NoError(t, err)
	require.NoError(t, <-read)
	clear(frame) // as a client reuses its buffer
	answered := sendAll(broker, answerFrame(1, "\x00"+string((&kmsg.ProduceResponse{Version: 9}).AppendTo(nil))))
	readFrame(t, client)
	require.NoError(t, <-answered)
	require.Equal(t, "records", string(records))
}

func TestRewriteSetsTheCode(t *testing.T) {
	w := newWorld(t, 1)
	f := onInit(faultnet.Rewrite)
	f.Code = 51
	w.net.Inject(f)
	resp, err := w.initTxn()
	require.NoError(t, err)
	require.EqualValues(t, 51, resp.ErrorCode)
	require.NotEqualValues(t, -1, resp.ProducerID)
}
