package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/ktxn/ktxn/txnsession"
)

// entry is one transfer in the journal, with the transaction in Kafka that
// belongs to it: a row of the database.
type entry struct {
	Transfer int                    `json:"transfer"`
	Txn      txnsession.PreparedTxn `json:"txn"`
}

// appendJournal returns once the entry is on disk. This is the database's
// commit, and what decides about both.
func appendJournal(name string, e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func readJournal(name string) ([]entry, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []entry
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		var e entry
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, scan.Err()
}
