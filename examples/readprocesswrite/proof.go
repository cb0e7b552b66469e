package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode"
)

// proof is what the run has come to.
type proof struct {
	lines, words, distinct     int // of the input
	committed, aborted, killed int // transactions
	seen                       int // records in the output topic, whatever became of their transaction
	visible                    int // those that a read_committed consumer gets
}

// count counts the words of a line.
func count(line string) map[string]int {
	counts := make(map[string]int)
	for _, word := range strings.FieldsFunc(strings.ToLower(line), func(r rune) bool {
		return !unicode.IsLetter(r) && r != '\''
	}) {
		if word = strings.Trim(word, "'"); word != "" {
			counts[word]++
		}
	}
	return counts
}

// prove compares the sums in the output topic with the text, counted again.
func (a *app) prove(ctx context.Context, lines []string) (proof, error) {
	want := make(map[string]int)
	for _, line := range lines {
		for word, n := range count(line) {
			want[word] += n
		}
	}
	visible, err := a.cluster.ReadCommitted(ctx, a.out)
	if err != nil {
		return proof{}, err
	}
	seen, err := a.cluster.ReadUncommitted(ctx, a.out)
	if err != nil {
		return proof{}, err
	}
	got := make(map[string]int)
	words := 0
	for _, r := range visible {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return proof{}, fmt.Errorf("the count of %q: %w", r.Key, err)
		}
		got[string(r.Key)] += n
		words += n
	}
	p := proof{
		lines: len(lines), words: words, distinct: len(got),
		committed: a.progress.committed, aborted: a.progress.aborted, killed: a.progress.killed,
		seen: len(seen), visible: len(visible),
	}
	a.say("transactions: %d committed, %d aborted by a worker, %d left open by a killed one and aborted by its successor",
		p.committed, p.aborted, p.killed)
	a.say("output    %d records written, %d of them committed: the other %d are invisible to read_committed readers",
		p.seen, p.visible, p.seen-p.visible)
	if !maps.Equal(got, want) {
		return p, fmt.Errorf("NOT exact: the output has %d words, and these differ: %v", words, differences(got, want))
	}
	a.say("proof     exact: the committed counts of all %d distinct words, %d words in %d lines, equal those of the text",
		p.distinct, p.words, p.lines)
	return p, nil
}

func differences(got, want map[string]int) []string {
	var all []string
	for word := range merged(got, want) {
		if got[word] != want[word] {
			all = append(all, fmt.Sprintf("%s %d instead of %d", word, got[word], want[word]))
		}
	}
	return all
}

func merged(a, b map[string]int) map[string]int {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}
