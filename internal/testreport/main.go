// Command testreport reads what go test -json prints and shows it as go test
// does without -v: the output of what failed and each package's closing line.
// It adds what that leaves out: which tests were skipped, and why, and how many
// ran in all.
//
//	go test -json ./... | go run ./internal/testreport
//
// Its exit code says nothing of the tests: go test's does (set -o pipefail).
package main

import (
	"fmt"
	"os"
)

func main() {
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	r.sum()
}
