package commands

import "github.com/grapevine-epp/grapevine/internal/cli"

// serveGroups are the headings of serve's help. The first one has the flags that most installations
// set.
var serveGroups = []cli.FlagGroup{
	{Title: "Common flags", Flags: []string{"endpoints", "pool-name", "config", "model", "cluster", "cluster-join", "cluster-key-file", "listen", "admin", "log-level"}},
	{Title: "General", Flags: []string{"name", "zone", "settings", "pools", "memory", "ready-timeout", "drain", "linger", "log-format", "log-decisions", "state-dir", "secret-file", "config-text"}},
	{Title: "Kubernetes", Flags: []string{
		"pool-namespace", "pools-service", "pool-group", "pool-guard", "endpoint-selector", "endpoint-target-ports", "kubeconfig", "pod-events-port", "pod-replay-port", "pod-events-topic", "pod-ip-family",
	}},
	{Title: "Models", Flags: []string{"model-alias", "model-adapter", "model-source", "model-cache", "model-revision", "unknown-model", "pass-models"}},
	{Title: "Group of replicas", Flags: []string{
		"share", "cluster-label", "cluster-peers-service", "cluster-bind", "cluster-stream-bind", "cluster-advertise", "cluster-tcp-only",
		"cluster-cert", "cluster-cert-key", "cluster-ca", "nats", "nats-creds", "nats-nkey",
	}},
	{Title: "Other clusters", Flags: []string{"federation-config", "federation-pool", "federation-objects"}},
	{Title: "Proxies", Flags: []string{
		"gateway", "destinations", "decision-header", "fallback-metadata", "ignore-subset", "mode-override", "answer-model", "message-timeout", "max-message-timeout", "work-timeout",
		"body-timeout", "max-body", "xds-listen", "xds-listener", "advertise", "health", "pick-listen", "pick-ends", "pick-expiry", "pick-token-file",
	}},
	{Title: "TLS and access", Flags: []string{
		"plaintext", "tls-cert", "tls-key", "tls-min", "client-ca", "client-name", "control", "control-token-file", "pass-control", "targets-key-file", "kv-transfer-fields", "kv-transfer-allow",
	}},
	{Title: "Engines", Flags: []string{
		"revision-label", "engine-scheme", "engine-verify", "engine-metrics-path", "engine-metrics-port", "engine-key-file", "discover-any-host", "events-listen", "events-allow", "scrape-slow", "scrape-fast", "probe-idle", "probe-rendering", "refuse-killers", "full-report", "sample-bodies", "speculate", "continuation-endpoints",
	}},
	{Title: "Metrics", Flags: []string{"metrics-compat", "metrics-pool", "size-target"}},
	{Title: "Flight records", Flags: []string{"flight-dir", "flight-trace", "flight-slow-decision"}},
}
