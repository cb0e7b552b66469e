// Package report prints what a benchmark program used, as one line of JSON.
package report

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Run is a measurement under way.
type Run struct {
	began   time.Time
	cpu     time.Duration
	mallocs uint64
}

// Begin starts measuring this process.
func Begin() *Run {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return &Run{time.Now(), cpuTime(), m.Mallocs}
}

// End prints the figures for n pieces of work of size bytes each to standard
// output. extra is merged in.
func (r *Run) End(name string, n, size int, extra map[string]any) error {
	sec, cpu := time.Since(r.began).Seconds(), (cpuTime() - r.cpu).Seconds()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	line := map[string]any{
		"name": name, "n": n, "sec": round(sec, 3), "per_s": round(float64(n)/sec, 0),
		"mb_s": round(float64(n)*float64(size)/sec/1e6, 1), "cpu_s": round(cpu, 2),
		"cpu_us_per": round(cpu*1e6/float64(n), 2), "allocs_per": round(float64(m.Mallocs-r.mallocs)/float64(n), 2),
		"rss_peak_mb": peakMB(), "goroutines": runtime.NumGoroutine(),
	}
	maps.Copy(line, extra)
	return json.NewEncoder(os.Stdout).Encode(line)
}

// Percentiles sorts ds and returns some of its percentiles in microseconds.
func Percentiles(ds []time.Duration) map[string]any {
	slices.Sort(ds)
	at := func(p float64) int64 { return ds[int(p*float64(len(ds)-1))].Microseconds() }
	return map[string]any{"p50_us": at(.5), "p90_us": at(.9), "p99_us": at(.99), "max_us": at(1)}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMB is the largest resident size so far; 0 where the system does not tell.
func peakMB() int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kb, _ := strconv.Atoi(f[1])
			return kb / 1024
		}
	}
	return 0
}

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}
