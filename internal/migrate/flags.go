package migrate

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// foreignFlag is a flag of other endpoint pickers with its equivalent.
type foreignFlag struct {
	name  string
	value foreignKind
	// to converts a value to flags of serve; nil if there is nothing to set.
	to func(value string) ([]serveFlag, error)
	// note describes the difference, or is "". It is shown if the flag is set, unless quiet returns
	// true for the value.
	note  string
	quiet func(value string) bool
}

// serveFlag is a flag of serve with its value.
type serveFlag struct{ name, value string }

// foreignKind is the type of a flag's value.
type foreignKind uint8

const (
	textValue foreignKind = iota
	boolValue             // --flag or --flag=false
)

// foreignFlags are the flags of the pickers of llm-d and of the Gateway API inference extension, in
// the manual's order.
var foreignFlags = []foreignFlag{
	{name: "grpc-port", to: listenAt("listen")},
	{name: "grpc-health-port", to: listenAt("health")},
	{name: "metrics-port", to: listenAt("admin")},
	{name: "health-checking", value: boolValue},
	{name: "config-file", to: same("config")},
	{name: "config-text", to: same("config-text")},
	{name: "secure-serving", value: boolValue, to: inverted("plaintext")},
	{name: "cert-path", to: certPath},
	{name: "enable-cert-reload", value: boolValue, note: "certificates are always reloaded when they change", quiet: isTrue},
	{name: "tls-min-version", to: tlsVersion},
	{name: "tls-cipher-suites", note: "cipher suites are those that Go considers safe"},
	{name: "metrics-endpoint-auth", value: boolValue, note: "the metrics listener requires no token: keep it on a private network", quiet: isFalse},
	{name: "metrics-cert-dir", note: "the metrics listener has no TLS: keep it on a private network"},
	{name: "metrics-client-ca-file", note: "the metrics listener has no TLS: keep it on a private network"},
	{name: "ha-enable-leader-election", value: boolValue, note: "there is no leader: every replica serves; with --cluster gossip or nats, replicas share their state", quiet: isFalse},
	{name: "drain-timeout", to: same("drain")},
	{name: "tracing", value: boolValue, note: "requests are traced if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER is set", quiet: isFalse},
	{name: "enable-pprof", value: boolValue, note: "profiles are always there, for clients on the same machine only", quiet: isTrue},
	{name: "emit-endpoint-scores", value: boolValue, note: "scores are not sent to the proxy: see grapevine explain", quiet: isFalse},
	{name: "disable-endpoint-subset-filter", value: boolValue, to: switched("ignore-subset")},
	{name: "enable-grpc-stream-metrics", value: boolValue, note: "streams are always counted", quiet: isTrue},
	{name: "allow-experimental-plugins", value: boolValue},
	{name: "grpc-max-recv-msg-size", to: bodySize, note: "larger bodies are answered with 413"},
	{name: "grpc-max-send-msg-size", note: "what is sent to the proxy has no limit of its own: a body goes back as large as it came"},
	{name: "refresh-metrics-interval", note: "load is counted, not scraped: engines are asked every --scrape-slow (1s), near saturation every --scrape-fast (200ms)"},
	{name: "refresh-prometheus-metrics-interval", note: "metrics are current when they are read"},
	{name: "metrics-staleness-threshold", note: "set metricsStalenessThreshold of the utilization-detector"},
	{name: "total-queued-requests-metric", note: namedGauge, quiet: knownGauge},
	{name: "total-running-requests-metric", note: namedGauge, quiet: knownGauge},
	{name: "kv-cache-usage-percentage-metric", note: namedGauge, quiet: knownGauge},
	{name: "lora-info-metric", note: namedGauge, quiet: knownGauge},
	{name: "cache-info-metric", note: namedGauge, quiet: knownGauge},
	{name: "model-server-metrics-scheme", to: same("engine-scheme")},
	{name: "model-server-metrics-path", to: same("engine-metrics-path")},
	{name: "model-server-metrics-port", to: same("engine-metrics-port")},
	{name: "model-server-metrics-https-insecure-skip-verify", value: boolValue, to: inverted("engine-verify")},
	{name: "fairness-id-metric-label-limit"},
	{name: "v", to: verbosity},
	{name: "zap-encoder", to: encoder},
	{name: "zap-log-level", to: zapLevel},
	{name: "zap-devel", value: boolValue, note: "there is one way of logging: see --log-level and --log-format", quiet: isFalse},
	{name: "zap-stacktrace-level", note: "errors are logged without stack traces"},
	{name: "zap-time-encoding", note: "times are written as in RFC 3339"},
}

const namedGauge = "name it in a core-metrics-extractor of the configuration"

func same(name string) func(string) ([]serveFlag, error) {
	return func(v string) ([]serveFlag, error) { return []serveFlag{{name, v}}, nil }
}

// listenAt converts a port to an address.
func listenAt(name string) func(string) ([]serveFlag, error) {
	return func(v string) ([]serveFlag, error) {
		if _, err := strconv.ParseUint(v, 10, 16); err != nil {
			return nil, fmt.Errorf("%q is not a port", v)
		}
		return []serveFlag{{name, net.JoinHostPort("0.0.0.0", v)}}, nil
	}
}

// switched copies a boolean flag if it is true.
func switched(name string) func(string) ([]serveFlag, error) {
	return func(v string) ([]serveFlag, error) {
		on, err := strconv.ParseBool(v)
		if err != nil || !on {
			return nil, err
		}
		return []serveFlag{{name, "true"}}, nil
	}
}

// inverted sets a boolean flag if theirs is false.
func inverted(name string) func(string) ([]serveFlag, error) {
	return func(v string) ([]serveFlag, error) {
		on, err := strconv.ParseBool(v)
		if err != nil || on {
			return nil, err
		}
		return []serveFlag{{name, "true"}}, nil
	}
}

func certPath(dir string) ([]serveFlag, error) {
	if dir == "" {
		return nil, nil
	}
	return []serveFlag{{"tls-cert", filepath.Join(dir, "tls.crt")}, {"tls-key", filepath.Join(dir, "tls.key")}}, nil
}

func tlsVersion(v string) ([]serveFlag, error) {
	switch v {
	case "", "VersionTLS10", "VersionTLS11", "VersionTLS12": // 1.2 is the minimum here
		return []serveFlag{{"tls-min", "1.2"}}, nil
	case "VersionTLS13":
		return []serveFlag{{"tls-min", "1.3"}}, nil
	}
	return nil, fmt.Errorf("%q: want VersionTLS12 or VersionTLS13", v)
}

// bodySize parses a quantity such as 10MiB, 25MB or 4194304.
func bodySize(v string) ([]serveFlag, error) {
	digits, factor := v, 1.0
	for _, u := range []struct {
		suffix string
		factor float64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
		{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1},
	} {
		if d, ok := strings.CutSuffix(v, u.suffix); ok {
			digits, factor = d, u.factor
			break
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || !(n > 0) || n*factor > 1<<40 {
		return nil, fmt.Errorf("%q is not a size", v)
	}
	return []serveFlag{{"max-body", strconv.FormatInt(int64(n*factor), 10)}}, nil
}

func verbosity(v string) ([]serveFlag, error) {
	n, err := strconv.Atoi(v)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number", v)
	}
	if n < 4 {
		return nil, nil
	}
	return []serveFlag{{"log-level", "debug"}}, nil
}

func encoder(v string) ([]serveFlag, error) {
	switch v {
	case "json":
		return []serveFlag{{"log-format", "json"}}, nil
	case "console":
		return []serveFlag{{"log-format", "text"}}, nil
	}
	return nil, fmt.Errorf("%q: want json or console", v)
}

func zapLevel(v string) ([]serveFlag, error) {
	switch v {
	case "debug", "info", "warn", "error":
		return []serveFlag{{"log-level", v}}, nil
	case "panic", "dpanic", "fatal":
		return []serveFlag{{"log-level", "error"}}, nil
	}
	return verbosity(v)
}

// knownGauge reports whether v belongs to an engine that is detected automatically.
func knownGauge(v string) bool {
	for _, prefix := range []string{"vllm:", "sglang:", "trtllm_", "nv_trt_llm_"} {
		if strings.HasPrefix(v, prefix) {
			return true
		}
	}
	return v == ""
}

func isTrue(v string) bool  { on, err := strconv.ParseBool(v); return err == nil && on }
func isFalse(v string) bool { on, err := strconv.ParseBool(v); return err == nil && !on }

// kebab returns a flag's current spelling: older pickers used poolName for pool-name.
func kebab(name string) string {
	var b strings.Builder
	for _, c := range name {
		if unicode.IsUpper(c) {
			b.WriteByte('-')
			c = unicode.ToLower(c)
		}
		b.WriteRune(c)
	}
	return b.String()
}
