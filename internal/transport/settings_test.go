package transport_test

import (
	"context"
	"crypto/tls"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/transport"
)

type pool struct{}

func (pool) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte { return nil }
func (pool) PutDecompressBytes([]byte)                                  {}

// settings are options whose values must reach another client.
var settings = map[string]kgo.Opt{
	"ClientID":                         kgo.ClientID("id"),
	"SoftwareNameAndVersion":           kgo.SoftwareNameAndVersion("name", "1.0"),
	"WithLogger":                       kgo.WithLogger(new(logRecorder)),
	"RequestTimeoutOverhead":           kgo.RequestTimeoutOverhead(7 * time.Second),
	"ConnIdleTimeout":                  kgo.ConnIdleTimeout(8 * time.Second),
	"Dialer":                           kgo.Dialer(func(context.Context, string, string) (net.Conn, error) { return nil, nil }),
	"SeedBrokers":                      kgo.SeedBrokers("a:1", "b:2"),
	"MaxVersions":                      kgo.MaxVersions(kversion.V3_0_0()),
	"MinVersions":                      kgo.MinVersions(kversion.V2_0_0()),
	"RetryBackoffFn":                   kgo.RetryBackoffFn(func(int) time.Duration { return 9 * time.Second }),
	"RequestRetries":                   kgo.RequestRetries(3),
	"RetryTimeoutFn":                   kgo.RetryTimeoutFn(func(int16) time.Duration { return 11 * time.Second }),
	"AllowAutoTopicCreation":           kgo.AllowAutoTopicCreation(),
	"BrokerMaxWriteBytes":              kgo.BrokerMaxWriteBytes(200 << 20),
	"BrokerMaxReadBytes":               kgo.BrokerMaxReadBytes(201 << 20),
	"MaxDecompressBatchBytes":          kgo.MaxDecompressBatchBytes(1 << 21),
	"MetadataMaxAge":                   kgo.MetadataMaxAge(13 * time.Minute),
	"MetadataMinAge":                   kgo.MetadataMinAge(3 * time.Second),
	"SASL":                             kgo.SASL(password("secret")),
	"WithPools":                        kgo.WithPools(pool{}),
	"ConcurrentTransactionsBackoff":    kgo.ConcurrentTransactionsBackoff(17 * time.Millisecond),
	"ConsiderMissingTopicDeletedAfter": kgo.ConsiderMissingTopicDeletedAfter(19 * time.Second),
	"OnRebootstrapRequired":            kgo.OnRebootstrapRequired(func() ([]string, error) { return nil, nil }),
	"AlwaysRetryEOF":                   kgo.AlwaysRetryEOF(),
}

// elsewhere are the options that Settings leaves out, and why.
var elsewhere = map[string]string{
	"DialTimeout":          "the dialer has it",
	"DialTLSConfig":        "the dialer has it",
	"DialTLS":              "the dialer has it",
	"RetryTimeout":         "RetryTimeoutFn is the same",
	"WithHooks":            "hooks have one home",
	"WithContext":          "lifetimes are apart",
	"DisableClientMetrics": "metrics have one home, and are off on lanes",
	"UserMetricsFn":        "metrics have one home",
}

func TestSettingsReachTheOtherClient(t *testing.T) {
	var opts []kgo.Opt
	for _, o := range settings {
		opts = append(opts, o)
	}
	from, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	defer from.Close()
	to, err := kgo.NewClient(transport.Settings(from)...)
	require.NoError(t, err)
	defer to.Close()
	plain, err := kgo.NewClient()
	require.NoError(t, err)
	defer plain.Close()

	show := func(cl *kgo.Client, name string) any {
		switch name {
		case "SASL":
			return reflect.ValueOf(cl.OptValue(name)).Len()
		case "RetryBackoffFn":
			return cl.OptValue(name).(func(int) time.Duration)(1) / time.Second
		case "RetryTimeoutFn":
			return cl.OptValue(name).(func(int16) time.Duration)(0)
		}
		v := cl.OptValues(name)
		if rv := reflect.ValueOf(v[0]); rv.IsValid() && rv.Kind() == reflect.Func {
			return rv.Pointer()
		}
		return v
	}
	for name := range settings {
		require.NotEqual(t, show(plain, name), show(from, name), "%s: the test must change it", name)
		require.Equal(t, show(from, name), show(to, name), name)
	}
}

func TestSettingsIncludeTLS(t *testing.T) {
	from, err := kgo.NewClient(kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS13}), kgo.DialTimeout(time.Second))
	require.NoError(t, err)
	defer from.Close()
	to, err := kgo.NewClient(transport.Settings(from)...)
	require.NoError(t, err)
	defer to.Close()
	require.NotNil(t, to.OptValue(kgo.Dialer))
}

// A client-level option that kgo gains must be decided about.
func TestSettingsKnowEveryOption(t *testing.T) {
	file, _ := runtime.FuncForPC(reflect.ValueOf(kgo.ClientID).Pointer()).FileLine(reflect.ValueOf(kgo.ClientID).Pointer())
	src, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Skipf("kgo's source is not at hand (%v): run go test ./internal/transport without -trimpath", err)
	}
	found := 0
	for _, d := range src.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !fn.Name.IsExported() || fn.Type.Results == nil {
			continue
		}
		if id, ok := fn.Type.Results.List[0].Type.(*ast.Ident); !ok || id.Name != "Opt" {
			continue
		}
		found++
		_, copied := settings[fn.Name.Name]
		_, left := elsewhere[fn.Name.Name]
		require.True(t, copied != left, "kgo.%s: copied %v, left out %v", fn.Name.Name, copied, left)
	}
	require.Equal(t, len(settings)+len(elsewhere), found)
}
