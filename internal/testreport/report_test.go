package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func show(t *testing.T, lines ...string) string {
	t.Helper()
	var b strings.Builder
	r := newReport(&b)
	for i := range lines {
		lines[i] += "\n"
	}
	require.NoError(t, r.read(strings.NewReader(strings.Join(lines, ""))))
	r.sum()
	return b.String()
}

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"nothing", nil, "0 passed, 0 failed, 0 skipped\n"},
		{"what passes shows its package's closing line only", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Output":"PASS\n"}`,
			`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\tcoverage: 9%\n"}`,
			`{"Action":"pass","Package":"p"}`,
			`{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}`,
			`{"Action":"skip","Package":"q"}`,
		}, "ok  \tp\t0.1s\tcoverage: 9%\n?   \tq\t[no test files]\n1 passed, 0 failed, 0 skipped\n"},
		{"what fails shows what it printed, and not what the others did", []string{
			`{"Action":"output","Package":"p","Test":"TestA","Output":"of A\n"}`,
			`{"Action":"output","Package":"p","Test":"TestB","Output":"of B\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestB"}`,
			`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
			`{"Action":"fail","Package":"p"}`,
		}, "of A\nFAIL\tp\t0.1s\n1 passed, 1 failed, 0 skipped\n"},
		{"a panic shows what the running test printed, and counts", []string{
			`{"Action":"output","Package":"p","Test":"TestA","Output":"before the end\n"}`,
			`{"Action":"output","Package":"p","Output":"panic: gone\n"}`,
			`{"Action":"fail","Package":"p"}`,
		}, "before the end\npanic: gone\n1 packages failed without a failed test: see above\n0 passed, 1 failed, 0 skipped\n"},
		{"a package that does not build counts", []string{
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"x.go:1: no\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
		}, "x.go:1: no\nFAIL\tp [build failed]\n1 packages failed without a failed test: see above\n0 passed, 1 failed, 0 skipped\n"},
		{"skipped tests are listed under their reason", []string{
			`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: no java; then: go test -run '^TestA$'\n"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"q","Test":"TestB/sub","Output":"    b_test.go:9: no java; then: go test -run '^TestB/sub$'\n"}`,
			`{"Action":"skip","Package":"q","Test":"TestB/sub"}`,
			`{"Action":"skip","Package":"q","Test":"TestC"}`,
		}, "left out: no java; then: go test -run '^NAME$'\n    p TestA\n    q TestB/sub\nleft out: no reason given\n    q TestC\n0 passed, 0 failed, 3 skipped\n"},
		{"a line that is no event is shown", []string{"warning: 7", `{"Action":"pass","Package":"p","Test":"TestA"}`},
			"warning: 7\n1 passed, 0 failed, 0 skipped\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, show(t, tt.lines...))
		})
	}
}
