package main

import (
	"testing"

	"github.com/ktxn/ktxn/txnsession"
)

func TestParse(t *testing.T) {
	want := txnsession.PreparedTxn{TransactionalID: "a", ProducerID: 7, ProducerEpoch: 2, TransactionVersion: -1}
	for _, line := range []string{"a 7 2", want.String()} {
		got, err := parse(line)
		if err != nil || got != want {
			t.Fatalf("%q: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "a x 2", "a 7 99999", "nonsense"} {
		if _, err := parse(line); err == nil {
			t.Fatalf("%q was taken", line)
		}
	}
}
