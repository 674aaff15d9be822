package commands

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/strict"
)

// commandSynonyms are names under which other programs have a subcommand of this program.
var commandSynonyms = map[string][]string{
	"serve":         {"run", "start", "server", "daemon", "picker"},
	"up":            {"demo", "local", "quickstart", "try", "play"},
	"epp":           {"extproc", "ext-proc", "ext_proc", "endpoint-picker"},
	"sidecar":       {"pd", "proxy", "pd-sidecar", "routing-sidecar"},
	"migrate":       {"convert", "translate", "import"},
	"check":         {"config", "validate", "lint", "verify", "test"},
	"explain":       {"why", "trace", "decision", "decisions", "debug"},
	"envoy-config":  {"envoy", "xds"},
	"status":        {"info", "health", "ready", "get", "ps", "list", "describe", "endpoints", "engines", "models"},
	"top":           {"dashboard", "ui", "watch", "monitor", "stats", "metrics"},
	"doctor":        {"diagnose", "diagnostics", "troubleshoot"},
	"log-level":     {"log", "logs", "loglevel", "verbosity"},
	"flight-record": {"record-flight", "dump", "profile", "pprof", "support-bundle"},
	"flow":          {"queue", "queues", "tenants", "flows"},
	"members":       {"peers", "replicas", "cluster", "gossip"},
}

// flagSynonyms are names under which other programs have a flag. Of the flags of an entry the first that
// the command has is meant.
var flagSynonyms = []struct {
	names, flags []string
}{
	{[]string{"policy", "profile", "config-path", "conf", "scheduler-config", "file", "filename", "f"}, []string{"config", "body"}},
	{[]string{"seed", "seeds", "join", "peer", "peers", "members", "gossip-join", "initial-peers"}, []string{"cluster-join"}},
	{[]string{"gossip", "raft", "ha"}, []string{"cluster"}},
	{[]string{"gossip-port", "gossip-bind", "gossip-listen", "cluster-listen", "cluster-port", "memberlist-bind"}, []string{"cluster-bind"}},
	{[]string{"gossip-key", "encrypt", "encryption-key", "secret", "key", "cluster-secret"}, []string{"cluster-key-file"}},
	{[]string{"nats-url", "nats-server", "nats-servers", "broker"}, []string{"nats"}},
	{[]string{"tls", "cert", "certificate", "certfile", "ssl-cert", "ssl-certfile"}, []string{"tls-cert"}},
	{[]string{"ssl-key", "ssl-keyfile", "keyfile", "private-key"}, []string{"tls-key"}},
	{[]string{"ca", "cacert", "ca-cert", "mtls"}, []string{"client-ca"}},
	{[]string{"insecure", "no-tls", "tls-disable"}, []string{"plaintext"}},
	{[]string{"backend", "backends", "upstream", "upstreams", "target", "targets", "worker", "workers", "worker-urls", "server", "servers", "hosts", "endpoints-file", "endpoint-file", "endpoint-list", "static-backends", "engines"}, []string{"endpoints", "endpoint", "engine", "admin"}},
	{[]string{"tokenizer", "tokenizers", "model-path", "model-dir", "models", "served-model-name"}, []string{"model"}},
	{[]string{"pool", "inference-pool", "inferencepool"}, []string{"pool-name"}},
	{[]string{"namespace", "n", "ns"}, []string{"pool-namespace"}},
	{[]string{"selector", "l", "label-selector", "service-discovery-selector"}, []string{"endpoint-selector"}},
	{[]string{"port", "grpc", "bind", "bind-address", "listen-address", "ext-proc-port", "p"}, []string{"listen", "ext-proc", "admin"}},
	{[]string{"admin-port", "admin-listen", "metrics-address", "metrics-bind-address", "web.listen-address", "prometheus-port", "status-port"}, []string{"admin"}},
	{[]string{"address", "addr", "url", "host", "replica", "remote"}, []string{"admin", "listen"}},
	{[]string{"health-port", "probe-port", "health-probe-bind-address"}, []string{"health"}},
	{[]string{"data-dir", "data", "state", "dir", "storage"}, []string{"state-dir"}},
	{[]string{"grace", "grace-period", "graceful-timeout", "shutdown-timeout", "termination-grace-period"}, []string{"drain"}},
	{[]string{"debug", "verbose", "verbosity", "quiet", "level"}, []string{"log-level"}},
	{[]string{"json", "yaml", "wide", "format", "out"}, []string{"output", "log-format"}},
	{[]string{"id", "request", "req", "decision", "decision-id", "trace-id"}, []string{"request-id"}},
	{[]string{"mem", "memory-limit", "max-memory"}, []string{"memory"}},
	{[]string{"max-body-size", "max-request-size", "body-limit"}, []string{"max-body"}},
	{[]string{"watch", "follow", "w", "interval", "refresh"}, nil},
}

// flagSynonym answers an unknown flag that has another name in this program, or returns "".
func flagSynonym(cmd *cobra.Command, name string) string {
	if !contains(synonyms, name) {
		if cmd.Flags().Lookup(strict.Nearest(name, flagNames(cmd))) != nil {
			return "" // a mistyped flag of cmd
		}
		name = strict.Nearest(name, synonyms)
	}
	for _, entry := range flagSynonyms {
		if !contains(entry.names, name) {
			continue
		}
		if entry.flags == nil && cmd.Flags().Lookup("admin") != nil && cmd.Name() != "serve" {
			return "grapevine top shows a replica's state again each second"
		}
		for _, flag := range entry.flags {
			known := cmd.Flags().Lookup(flag)
			switch {
			case known == nil:
			case flag == "output" && name != "format" && name != "out":
				return "did you mean --output " + name + "?"
			case flag == "log-level" && name != "level" && name != "verbosity" && name != "quiet":
				return "did you mean --log-level debug?"
			default:
				return "did you mean --" + flag + "?"
			}
		}
	}
	return ""
}

// synonyms are the names of all entries of flagSynonyms.
var synonyms = func() (names []string) {
	for _, entry := range flagSynonyms {
		names = append(names, entry.names...)
	}
	return names
}()

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// codeAsCommand answers the code of a problem or the name of an alert in place of a subcommand.
func codeAsCommand(word string) error {
	_, code := problems.Lookup(word)
	_, alert := problems.OfAlert(word)
	if !code && !alert {
		return nil
	}
	return fmt.Errorf("unknown command %q of grapevine; did you mean \"grapevine help %s\"?", word, word)
}
