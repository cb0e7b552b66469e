package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// test names one test or, without a name, what its package prints itself.
type test struct{ pkg, name string }

type report struct {
	w       io.Writer
	output  map[test][]string // of what has not ended yet
	passed  int
	failed  int
	skipped map[string][]string // tests by the reason they gave
	broken  int                 // packages that failed without a failed test
	failing map[string]bool     // packages with a failed test
}

func newReport(w io.Writer) *report {
	return &report{w: w, output: map[test][]string{}, skipped: map[string][]string{}, failing: map[string]bool{}}
}

// read takes events until the input ends. A line that is none is shown as it
// is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) == nil && e.Action != "":
			r.take(e)
		default:
			r.print(string(line))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Action == "output":
		r.output[t] = append(r.output[t], e.Output)
	case e.Test == "" && (e.Action == "pass" || e.Action == "skip"):
		r.closing(e.Package)
	case e.Test == "" && e.Action == "fail":
		if !r.failing[e.Package] {
			r.broken++
		}
		r.unfinished(e.Package)
		r.flush(t)
	case e.Action == "pass":
		r.passed++
		delete(r.output, t)
	case e.Action == "fail":
		r.failed++
		r.failing[e.Package] = true
		r.flush(t)
	case e.Action == "skip":
		reason := reasonOf(r.output[t])
		r.skipped[reason] = append(r.skipped[reason], e.Package+" "+e.Test)
		delete(r.output, t)
	}
}

// closing shows the line by which go test ends a package that has passed.
func (r *report) closing(pkg string) {
	t := test{pkg, ""}
	for _, line := range r.output[t] {
		if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
			r.print(line)
		}
	}
	delete(r.output, t)
}

// unfinished shows what the tests printed that a panic or a timeout ended.
func (r *report) unfinished(pkg string) {
	for _, t := range slices.SortedFunc(maps.Keys(r.output), func(a, b test) int { return strings.Compare(a.name, b.name) }) {
		if t.pkg == pkg && t.name != "" {
			r.flush(t)
		}
	}
}

func (r *report) flush(t test) {
	for _, line := range r.output[t] {
		r.print(line)
	}
	delete(r.output, t)
}

func (r *report) print(s string) { fmt.Fprint(r.w, s) }

var fileAndLine = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// reasonOf finds what a test gave to Skip. The name of the test in it is
// blurred so that the same reason of many tests is shown once.
func reasonOf(output []string) string {
	var words []string
	for _, line := range output {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "--- ") || strings.HasPrefix(line, "=== ") {
			continue
		}
		if line = strings.TrimSpace(fileAndLine.ReplaceAllString(line, "")); line != "" {
			words = append(words, line)
		}
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return testNames.ReplaceAllString(strings.Join(words, " "), "NAME")
}

var testNames = regexp.MustCompile(`\bTest[A-Z0-9]\w*(/[^\s'"$]+)*`)

// sum shows what was left out, and the line that counts.
func (r *report) sum() {
	n := 0
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := r.skipped[reason]
		n += len(tests)
		fmt.Fprintf(r.w, "left out: %s\n", reason)
		for _, t := range tests {
			fmt.Fprintf(r.w, "    %s\n", t)
		}
	}
	if r.broken > 0 {
		fmt.Fprintf(r.w, "%d packages failed without a failed test: see above\n", r.broken)
	}
	fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.failed+r.broken, n)
}
