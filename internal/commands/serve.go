package commands

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	o          server.Options
	kube       kubeFlags
	federation federationFlags
	pools      poolsFlags
	models     []string
	files      modelFileFlags
	aliases    []string
	adapters   []string
	secret     string
	pickToken  string
	targetsKey string
	// controlToken is the file of the control listener's token.
	controlToken string
	memory       string
	kvTransfer   string
	keys         []string
	logFormat    string
	logLevel     string
	eventsAllow  []string
	// unknownModel selects how requests for a model without engines are handled.
	unknownModel string
	given        func(flag string) bool
	warnings     []string // about the environment
}

func newServe(p Program) *cobra.Command {
	var f serveFlags
	f.o.Version, f.o.Plugins, f.kube.version = p.Version, p.Plugins, p.Version
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one replica of the endpoint picker",
		Long: `Runs one replica: it answers Envoy's external processing, follows the engines' KV-cache
events and metrics, and serves metrics and status. SIGHUP reloads configuration, models and
group keys. SIGTERM drains: proxies are told, and the process exits after its open requests.`,
		Example: `  grapevine serve --endpoints endpoints.yaml
  grapevine serve --endpoints endpoints.yaml --model qwen3=/models/Qwen3-8B
  grapevine serve --endpoints endpoints.yaml --config epp.yaml --tls-cert tls.crt --tls-key tls.key`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.ReadSettings(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			f.warnings = cli.MisspelledEnvironment(cmd.Flags(), os.Environ())
			return f.run(cmd.Context())
		},
	}
	cli.GroupFlags(cmd, serveGroups)
	fl := cmd.Flags()
	fl.String(cli.SettingsFlag, "", "YAML file with values of these flags by name; the command line and the environment variables GRAPEVINE_FLAG_NAME take precedence")
	f.given = fl.Changed
	fl.StringVar(&f.o.Name, "name", hostname(), "name of this replica")
	fl.StringVar(&f.o.Zone, "zone", "", "zone of this replica, compared with the label topology.kubernetes.io/zone of endpoints (default: $ZONE)")
	fl.StringSliceVar(&f.o.RevisionLabels, "revision-label", []string{endpoint.LabelRevision}, "label whose value is common to the prefill, decode and encode endpoints of one revision; endpoints of two revisions are not paired. The first one that an endpoint has counts (repeatable; empty: none)")
	fl.StringVar(&f.o.Endpoints, "endpoints", "", "endpoints file, reloaded when it changes (required without a pool flag or a file in dataLayer.discovery of --config)")
	fl.StringVar(&f.o.StateDir, "state-dir", "", "Kubernetes: folder in which this replica keeps the last list of endpoints, for a start while neither the API server nor a peer can be reached (default: none)")
	f.kube.add(fl)
	f.federation.add(fl)
	f.pools.add(fl)
	fl.StringVar(&f.o.Config, "config", "", "EndpointPickerConfig file (default: the built-in profile)")
	fl.StringVar(&f.o.ConfigText, "config-text", "", "text of an EndpointPickerConfig, instead of --config")
	fl.StringArrayVar(&f.models, "model", nil, "NAME=FOLDER of a base model's tokenizer files, instead of those that --model-source finds (repeatable)")
	fl.StringArrayVar(&f.aliases, "model-alias", nil, "MODEL=NAME: alias of a base model (repeatable)")
	fl.StringArrayVar(&f.adapters, "model-adapter", nil, "MODEL=NAME: LoRA adapter of a base model (repeatable)")
	f.files.add(fl)
	fl.StringVar(&f.targetsKey, "targets-key-file", "", "file with a base64 key of 32 bytes that signs prefill and encode targets for sidecars; the public key is logged")
	fl.StringVar(&f.secret, "secret-file", "", "file with the replica group's secret")
	f.clusterFlags(fl)
	fl.StringVar(&f.o.Listen, "listen", "0.0.0.0:9002", "ext_proc listener")
	fl.StringVar(&f.o.XDS.Listen, "xds-listen", "", "xDS listener for Envoys that get pool and replicas dynamically, with the TLS settings of ext_proc (default: none)")
	fl.StringVar(&f.o.XDS.Listener, "xds-listener", "", "client listener of such an Envoy, as ip:port; listener and clusters are then also served over xDS")
	fl.StringVar(&f.o.XDS.Advertise, "advertise", "", "ip:port at which Envoy reaches this replica's ext_proc listener (default: its own address)")
	fl.StringVar(&f.o.Health, "health", "0.0.0.0:9003", "gRPC health listener; - for none")
	fl.StringVar(&f.o.Admin, "admin", "127.0.0.1:9090", "metrics, health and status listener; pages that act or reveal requests are served only to this machine")
	fl.StringVar(&f.o.Control, "control", "", "listener for remote reload, explain, record, decisions and profiles: unix:PATH or host:port; other than loopback it requires TLS and --control-token-file or --client-ca (default: none)")
	fl.StringVar(&f.controlToken, "control-token-file", "", "file with the client token of --control")
	fl.StringVar(&f.o.PickListen, "pick-listen", "", "HTTP listener for proxies without external processing; other than loopback it requires --pick-token-file (default: none)")
	fl.StringVar(&f.o.PickEnds, "pick-ends", "", "datagram listener, host:port or unix:PATH, for such proxies' access log lines, which mark the end of picks (default: none)")
	fl.StringVar(&f.pickToken, "pick-token-file", "", "file with the token of such proxies")
	fl.DurationVar(&f.o.PickExpiry, "pick-expiry", 10*time.Minute, "age after which a pick without a reported end counts as ended")
	fl.StringVar(&f.o.FlightDir, "flight-dir", "", "folder for the last eight flight records, at most 64 MiB (default: the folder flight in --state-dir; without one in memory, at most 32 MiB or 0.5% of --memory)")
	fl.DurationVar(&f.o.FlightTrace, "flight-trace", 0, "length of the execution trace before a flight record; it runs all the time and takes processor time (0: the trace of a record covers the second after it)")
	fl.DurationVar(&f.o.SlowDecision, "flight-slow-decision", 250*time.Millisecond, "a decision that takes this long, without waits for capacity, makes a flight record, at most one in five minutes (0: never)")
	fl.BoolVar(&f.o.MetricsCompat, "metrics-compat", false, "also serve metrics under the names and labels of other endpoint pickers")
	fl.StringVar(&f.o.MetricsPool, "metrics-pool", "", "pool name in the labels of those metrics (default: --pool-name, or grapevine)")
	fl.BoolVar(&f.o.TLS.Plaintext, "plaintext", false, "no TLS on the ext_proc listener")
	fl.StringVar(&f.o.TLS.CertFile, "tls-cert", "", "certificate file, reloaded when it changes (default: self-signed)")
	fl.StringVar(&f.o.TLS.KeyFile, "tls-key", "", "key file")
	fl.IntVar(&f.o.MaxBody, "max-body", 64<<20, "largest request body in bytes, at most a tenth of --memory; larger ones are answered with 413")
	fl.StringVar(&f.memory, "memory", "", "memory limit of the process, such as 1GiB (default: the cgroup's limit, or the machine's memory)")
	fl.DurationVar(&f.o.BodyTimeout, "body-timeout", extproc.DefaultBodyTimeout, "time limit for the rest of a request body after its first part")
	fl.StringVar(&f.kvTransfer, "kv-transfer-fields", "refuse", "handling of request body fields that transfer caches between engines: refuse (400) or strip")
	fl.StringSliceVar(&f.o.KVTransfer.Allow, "kv-transfer-allow", nil, "such fields that clients may send (repeatable)")
	fl.BoolVar(&f.o.PassControl, "pass-control", false, "forward engine control calls, such as /flush_cache, /sleep and /v1/load_lora_adapter, instead of answering 403")
	fl.DurationVar(&f.o.MessageTimeout, "message-timeout", extproc.DefaultMessageTimeout, "message_timeout of the proxy: if the proxy buffers bodies, requests wait for capacity for less than this")
	fl.DurationVar(&f.o.MaxMessageTimeout, "max-message-timeout", 0, "max_message_timeout of the proxy, requested when a request starts to wait (0: only message_timeout)")
	fl.Float64Var(&f.o.LogDecisions, "log-decisions", 0, "share of decisions, 0 to 1, that the log has with prediction and outcome, at most 100 per second")
	fl.BoolVar(&f.o.DecisionHeader, "decision-header", false, "send clients the header x-grapevine-decision, which names the deciding replica and its decision for explain --request-id")
	fl.DurationVar(&f.o.WorkTimeout, "work-timeout", picker.DefaultWorkTimeout, "time limit for computing a decision, after which only load decides; less than the proxy's message timeout")
	fl.StringVar(&f.o.TLS.ClientCA, "client-ca", "", "CA file for proxies' certificates on the ext_proc and xDS listeners, reloaded when it changes; other proxies are refused (default: any proxy)")
	fl.StringSliceVar(&f.o.TLS.ClientNames, "client-name", nil, "required SPIFFE or DNS name in a proxy's certificate, with --client-ca (repeatable)")
	fl.StringVar(&f.o.TLS.Min, "tls-min", "1.2", "minimum TLS version of these listeners: 1.2 or 1.3")
	fl.BoolVar(&f.o.Trust.AnyHost, "discover-any-host", false, "allow engines to name event streams on other hosts")
	fl.StringSliceVar(&f.o.EventsListen, "events-listen", nil, "tcp://host:port to which engines connect to publish events, the r-th for rank r (repeatable; default: kvEventsConfig.zmqEndpoint of the configuration, else none)")
	fl.StringSliceVar(&f.eventsAllow, "events-allow", nil, "address or CIDR, besides endpoints, that may connect there and publish for the endpoints named in its topics (repeatable)")
	fl.BoolVar(&f.o.AllowModeOverride, "mode-override", true, "request the bodies of single responses if the proxy's filter allows it")
	fl.StringVar((*string)(&f.o.Gateway), "gateway", "auto", "type of the proxy, which determines the format of destinations: "+strings.Join(extproc.GatewayNames(), ", "))
	fl.IntVar(&f.o.Destinations, "destinations", 0, "addresses in one answer (default: 1, or the number announced by the gateway or proxy)")
	fl.StringVar((*string)(&f.o.AnswerModel), "answer-model", "auto", "model name in answers to rewritten requests: client (answers then pass through the picker), engine, or auto (client in full duplex)")
	fl.BoolVar(&f.o.IgnoreSubset, "ignore-subset", false, "ignore the proxy's subset and choose among all endpoints")
	fl.BoolVar(&f.o.FallbackMetadata, "fallback-metadata", false, "also send the older fallback metadata key")
	fl.BoolVar(&f.o.RefuseKillers, "refuse-killers", true, "refuse prompts that were in flight at two engines when these died, for two minutes or until one is answered")
	fl.StringVar(&f.unknownModel, "unknown-model", "reject", "handling of requests for a model that no engine serves: reject (404) if every engine's model list confirms it, or place")
	fl.BoolVar(&f.o.PassModels, "pass-models", false, "forward GET /v1/models to an engine instead of answering with all models")
	fl.BoolVar(&f.o.FullReport, "full-report", true, "ask vLLM engines to report cache reuse in one of 50 requests, while too little is known about them")
	fl.IntVar(&f.o.Continuations, "continuation-endpoints", 0, "endpoints named to sidecars with --continue-streams, where a stream may continue after its engine died; 0 for none")
	f.o.SizeTarget = sizing.Default
	fl.Var(&f.o.SizeTarget, "size-target", "time to first token for which the metric grapevine_picker_endpoints_wanted computes a number of endpoints, such as p99=1s; none for no metric")
	fl.Float64Var(&f.o.SampleBodies, "sample-bodies", .05, "share of responses whose body is read; negative for none")
	fl.DurationVar(&f.o.Speculate, "speculate", 5*time.Second, "how long a decision counts as cached before events confirm it")
	fl.DurationVar(&f.o.ScrapeSlow, "scrape-slow", time.Second, "interval between readings of an engine's metrics")
	fl.DurationVar(&f.o.ScrapeFast, "scrape-fast", 200*time.Millisecond, "the same while an engine is near saturation")
	fl.DurationVar(&f.o.ReadyTimeout, "ready-timeout", 15*time.Second, "time limit for full knowledge, after which the replica reports ready without it")
	fl.DurationVar(&f.o.Drain, "drain", 20*time.Second, "time limit for open requests after SIGTERM")
	fl.DurationVar(&f.o.Linger, "linger", 2*time.Second, "part of --drain, at most half of it, in which new requests are still accepted while proxies are told of the shutdown")
	f.engineFlags(fl)
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error, and PACKAGE=LEVEL for single packages, such as info,picker/monitor=debug; grapevine log-level changes it at run time")
	return cmd
}

// engineFlags are the flags for the replica's own requests to engines.
func (f *serveFlags) engineFlags(fl *pflag.FlagSet) {
	e := &f.o.Engines
	fl.StringVar(&e.Scheme, "engine-scheme", "http", "http or https: how the replica reads engines' metrics. With https and no --engine-metrics-port, its other requests to engines use TLS too. A metrics-data-source in --config replaces this flag and the next three")
	fl.BoolVar(&e.Verify, "engine-verify", false, "with --engine-scheme https, verify engines' certificates by the system's CAs")
	fl.StringVar(&e.MetricsPath, "engine-metrics-path", "", "path of engines' metrics (default: /metrics, or /prometheus/metrics if that is JSON)")
	fl.IntVar(&e.MetricsPort, "engine-metrics-port", 0, "port of engines' metrics (0: the endpoint's port)")
	fl.StringVar(&f.o.EngineKeyFile, "engine-key-file", "", "file with the engines' API key (--api-key of the engine) for the replica's own requests: models, event streams, health, rendering and warm-ups; reloaded on SIGHUP; clients send the key themselves")
	fl.DurationVar(&f.o.ProbeIdle, "probe-idle", 30*time.Second, "idle time after which an engine is probed with a request for eight tokens; 0 disables probes")
	fl.BoolVar(&f.o.ProbeRendering, "probe-rendering", true, "compare the engines' rendering of three fixed chats with the local template every ten minutes and after suspicious answers, and report differences")
}

// clusterFlags are the flags of the replica group.
func (f *serveFlags) clusterFlags(fl *pflag.FlagSet) {
	c := &f.o.Cluster
	fl.StringVar(&c.Mode, "cluster", "none", "how replicas share state: none, gossip or nats")
	fl.StringVar(&c.Share, "share", "auto", "readers of an engine's events: mesh (every replica), partitioned (one owner each) or auto (mesh up to 32 streams)")
	fl.StringArrayVar(&f.keys, "cluster-key-file", nil, "file with base64 keys of 16, 24 or 32 bytes, one per line; the first encrypts, all decrypt; reloaded when it changes and on SIGHUP (repeatable)")
	fl.StringVar(&c.Label, "cluster-label", "grapevine", "group name; members with another name are refused")
	fl.StringSliceVar(&c.Join, "cluster-join", nil, "gossip: member to join, host:port; a name means all its addresses (repeatable)")
	fl.StringVar(&f.kube.peers, "cluster-peers-service", "", "gossip: Kubernetes Service, NAME or NAMESPACE/NAME, whose EndpointSlices list the members to join")
	fl.StringVar(&c.Bind, "cluster-bind", "", "gossip: listener (default 0.0.0.0:7946)")
	fl.StringVar(&c.StreamBind, "cluster-stream-bind", "", "gossip: stream listener (default port 7947)")
	fl.StringVar(&c.Advertise, "cluster-advertise", "", "gossip: host or host:port at which others reach this replica")
	fl.BoolVar(&c.TCPOnly, "cluster-tcp-only", false, "gossip: no UDP")
	fl.StringSliceVar(&c.NATS, "nats", nil, "nats: server URLs (repeatable)")
	fl.StringVar(&c.Credentials, "nats-creds", "", "nats: credentials file")
	fl.StringVar(&c.NKey, "nats-nkey", "", "nats: nkey seed file")
	fl.StringVar(&c.CertFile, "cluster-cert", "", "certificate file, reloaded when it changes; gossip: for streams (default: generated at start), nats: client certificate")
	fl.StringVar(&c.KeyFile, "cluster-cert-key", "", "its key file")
	fl.StringVar(&c.CAFile, "cluster-ca", "", "CA file for the certificates of the other replicas (gossip) or of the servers (nats)")
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "grapevine"
	}
	return name
}

// started is when this process started.
var started = time.Now()

func (f *serveFlags) run(ctx context.Context) error {
	log, err := cli.Stderr().Logger(f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	defer cli.ExitAfter(ctx, f.o.Drain, log)()
	f.o.Log, f.o.LogWriter, f.o.Started = log, cli.Stderr(), started
	for _, w := range f.warnings {
		log.Warn(w) //nolint:sloglint // the text names the variable
	}
	if err := f.complete(); err != nil {
		return err
	}
	f.o.Linger = min(f.o.Linger, f.o.Drain/2) // the rest of the time is for open requests and the end
	end, err := f.kube.findPeers(&f.o.Cluster, log)
	if err != nil {
		return err
	}
	defer end()
	s, err := f.open(log)
	if err != nil {
		return err
	}
	f.watchKeys(ctx, s, log)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-hup:
			if err := s.Reload(ctx); err != nil {
				log.Error("reload failed, keeping the current configuration", "error", err)
			}
			f.rekey(s, log)
			continue
		case <-ctx.Done():
		}
		end, cancel := context.WithTimeout(context.Background(), f.o.Drain-min(time.Second, f.o.Drain/5))
		defer cancel()
		s.Drain(end)
		return s.Stop(end)
	}
}

// sources checks the sources of configuration and endpoints.
func (f *serveFlags) sources() (err error) {
	if f.o.Config != "" && f.o.ConfigText != "" {
		return errors.New("--config and --config-text cannot be used together")
	}
	if f.pools.several() {
		return cmp.Or(f.pools.check(f.given), f.kube.check())
	}
	if f.o.Source, err = f.kube.source(f.given, f.o.Endpoints); err != nil {
		return err
	}
	if f.o.Endpoints == "" && f.o.Source == nil && f.o.Config == "" && f.o.ConfigText == "" {
		return errors.New("--endpoints is required without --pool-name, --pools, --pools-service or a --config with a file in dataLayer.discovery")
	}
	return nil
}

// prefixOf reads an address or a CIDR.
func prefixOf(v string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(v); err == nil {
		return a.Prefix(a.BitLen())
	}
	return netip.ParsePrefix(v)
}

// complete turns flags into options.
func (f *serveFlags) complete() (err error) {
	if err := f.sources(); err != nil {
		return cli.UsageError{Err: err}
	}
	for _, v := range f.eventsAllow {
		p, err := prefixOf(v)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("--events-allow %q: want an address or a CIDR", v)}
		}
		f.o.EventsAllow = append(f.o.EventsAllow, p)
	}
	if err := f.federation.complete(&f.o.Federation, &f.kube); err != nil {
		return cli.UsageError{Err: err}
	}
	if (f.o.TLS.CertFile == "") != (f.o.TLS.KeyFile == "") {
		return cli.UsageError{Err: errors.New("--tls-cert and --tls-key must be used together")}
	}
	if _, known := extproc.FactsOf(f.o.Gateway); !known {
		return cli.UsageError{Err: fmt.Errorf("--gateway %q: want %s", f.o.Gateway, strings.Join(extproc.GatewayNames(), ", "))}
	}
	if !slices.Contains(extproc.AnswerModels(), string(f.o.AnswerModel)) {
		return cli.UsageError{Err: fmt.Errorf("--answer-model %q: want %s", f.o.AnswerModel, strings.Join(extproc.AnswerModels(), ", "))}
	}
	if e := f.o.Engines; e.Scheme != "http" && e.Scheme != "https" {
		return cli.UsageError{Err: fmt.Errorf("--engine-scheme %q: want http or https", e.Scheme)}
	} else if e.MetricsPort < 0 || e.MetricsPort > 65535 {
		return cli.UsageError{Err: fmt.Errorf("--engine-metrics-port %d is not a port", e.MetricsPort)}
	}
	if f.o.FlightDir == "" && f.o.StateDir != "" {
		f.o.FlightDir = filepath.Join(f.o.StateDir, "flight")
	}
	f.o.Zone = cmp.Or(f.o.Zone, os.Getenv("ZONE"))
	f.o.MetricsPool = cmp.Or(f.o.MetricsPool, f.kube.o.Pool, "grapevine")
	if f.o.Destinations < 0 {
		return cli.UsageError{Err: fmt.Errorf("--destinations %d: want 0 or more", f.o.Destinations)}
	}
	if c := &f.o.Cluster; (c.CertFile == "") != (c.KeyFile == "") {
		return cli.UsageError{Err: errors.New("--cluster-cert and --cluster-cert-key must be used together")}
	}
	switch f.unknownModel {
	case "reject", "place":
		f.o.PlaceUnknown = f.unknownModel == "place"
	default:
		return cli.UsageError{Err: fmt.Errorf("--unknown-model %s: want reject or place", f.unknownModel)}
	}
	switch f.kvTransfer {
	case "refuse":
	case "strip":
		f.o.KVTransfer.Action = kvtransfer.Strip
	default:
		return cli.UsageError{Err: fmt.Errorf("--kv-transfer-fields %q: want refuse or strip", f.kvTransfer)}
	}
	if f.memory != "" {
		n, err := budget.ParseSize(f.memory)
		if err != nil || n < 64<<20 {
			return cli.UsageError{Err: fmt.Errorf("--memory %q: want at least 64MiB", f.memory)}
		}
		f.o.Memory = n
	}
	if err := f.group(); err != nil {
		return cli.UsageError{Err: err}
	}
	for name, d := range map[string]time.Duration{
		"--ready-timeout": f.o.ReadyTimeout, "--drain": f.o.Drain, "--linger": f.o.Linger, "--speculate": f.o.Speculate, "--body-timeout": f.o.BodyTimeout, "--work-timeout": f.o.WorkTimeout, "--message-timeout": f.o.MessageTimeout, "--scrape-slow": f.o.ScrapeSlow, "--scrape-fast": f.o.ScrapeFast, "--pick-expiry": f.o.PickExpiry,
	} {
		if d <= 0 {
			return cli.UsageError{Err: fmt.Errorf("%s %s: want more than 0", name, d)}
		}
	}
	if f.o.LogDecisions < 0 || f.o.LogDecisions > 1 {
		return cli.UsageError{Err: fmt.Errorf("--log-decisions %v: want a share from 0 to 1", f.o.LogDecisions)}
	}
	if err := f.secrets(); err != nil {
		return err
	}
	for _, m := range f.models {
		name, path, ok := strings.Cut(m, "=")
		if !ok || name == "" || path == "" {
			return cli.UsageError{Err: fmt.Errorf("--model %q: want NAME=FOLDER", m)}
		}
		f.o.Models = append(f.o.Models, server.ModelOptions{Name: name, Path: path})
	}
	if f.o.ModelSource, err = f.files.options(); err != nil {
		return cli.UsageError{Err: err}
	}
	if err := f.names(f.aliases, "--model-alias", func(m *server.ModelOptions, n string) { m.Aliases = append(m.Aliases, n) }); err != nil {
		return err
	}
	if f.o.Endpoints != "" {
		// Checked before the replica joins its group, so that a wrong path fails at once.
		if _, err := os.Stat(f.o.Endpoints); err != nil {
			if words := strings.FieldsFunc(f.o.Endpoints, func(r rune) bool { return r == ',' }); len(words) > 0 && cli.IsAddress(words[0]) {
				return cli.UsageError{Err: fmt.Errorf("--endpoints is a file that lists endpoints, not an address; did you mean grapevine up --engine %s?", strings.Join(words, " --engine "))}
			}
			return fmt.Errorf("--endpoints: %w", err)
		}
	}
	return f.names(f.adapters, "--model-adapter", func(m *server.ModelOptions, n string) { m.Adapters = append(m.Adapters, n) })
}

// secrets reads the files that hold keys and tokens.
func (f *serveFlags) secrets() (err error) {
	if f.secret != "" {
		b, err := os.ReadFile(f.secret)
		if err != nil {
			return fmt.Errorf("--secret-file: %w", err)
		}
		f.o.Secret = strings.TrimSpace(string(b))
	}
	if f.pickToken != "" {
		b, err := os.ReadFile(f.pickToken)
		if err != nil {
			return fmt.Errorf("--pick-token-file: %w", err)
		}
		if f.o.PickToken = strings.TrimSpace(string(b)); f.o.PickToken == "" {
			return fmt.Errorf("--pick-token-file: %s is empty", f.pickToken)
		}
	}
	if f.controlToken != "" {
		b, err := os.ReadFile(f.controlToken)
		if err != nil {
			return fmt.Errorf("--control-token-file: %w", err)
		}
		if f.o.ControlToken = strings.TrimSpace(string(b)); len(f.o.ControlToken) < 16 {
			return cli.UsageError{Err: errors.New("--control-token-file: want a token of 16 bytes or more")}
		}
	}
	if f.targetsKey != "" {
		keys, err := cli.ReadBase64(f.targetsKey)
		if err != nil || len(keys) != 1 {
			return fmt.Errorf("--targets-key-file: want one base64 key of 32 bytes: %w", err)
		}
		f.o.TargetsKey = keys[0]
	}
	f.o.Cluster.Keys, err = f.readKeys()
	return err
}

// group checks the flags of the replica group. A flag without effect in the chosen mode usually
// means a forgotten --cluster.
func (f *serveFlags) group() error {
	mode := f.o.Cluster.Mode
	for _, c := range []struct{ mode, flags string }{
		{"gossip", "cluster-join cluster-peers-service cluster-bind cluster-stream-bind cluster-advertise cluster-tcp-only"},
		{"nats", "nats nats-creds nats-nkey"},
		{"gossip or nats", "cluster-key-file cluster-label cluster-cert cluster-ca share"},
	} {
		for name := range strings.FieldsSeq(c.flags) {
			if f.given(name) && !strings.Contains(c.mode, mode) {
				return fmt.Errorf("--%s has no effect with --cluster %s: it requires --cluster %s", name, mode, c.mode)
			}
		}
	}
	switch c := &f.o.Cluster; {
	case mode != "none" && mode != "gossip" && mode != "nats":
		return fmt.Errorf("--cluster %q: want none, gossip or nats", mode)
	case mode != "none" && c.Label == "":
		return errors.New("--cluster-label is empty: want a name")
	case mode == "nats" && len(c.NATS) == 0:
		return errors.New("--cluster nats requires --nats URL")
	}
	return nil
}

// readKeys reads the group's keys, one per line of each file.
func (f *serveFlags) readKeys() (keys [][]byte, err error) {
	for _, file := range f.keys {
		more, err := cli.ReadBase64(file)
		if err != nil {
			return nil, fmt.Errorf("--cluster-key-file: %w", err)
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

// watchKeys rereads the group's keys when their files change, until ctx ends, so that rotating a
// mounted Secret needs no manual step.
func (f *serveFlags) watchKeys(ctx context.Context, s replica, log *slog.Logger) {
	for _, file := range f.keys {
		before, _ := os.ReadFile(file) // an unreadable file has been refused
		go discovery.Watch(ctx, file, discovery.WatchOptions{Log: log}, func() {
			if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, before) {
				before = b
				f.rekey(s, log)
			}
		})
	}
}

// rekey gives a running replica the keys that are now in the files.
func (f *serveFlags) rekey(s replica, log *slog.Logger) {
	if len(f.keys) == 0 {
		return
	}
	keys, err := f.readKeys()
	if err == nil {
		err = s.SetKeys(keys)
	}
	if err != nil {
		log.Error("group keys refused, keeping the current ones", "error", err)
		return
	}
	log.Info("group keys read", "keys", len(keys))
}

// names parses MODEL=NAME pairs.
func (f *serveFlags) names(pairs []string, flag string, add func(*server.ModelOptions, string)) error {
	for _, p := range pairs {
		model, name, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return cli.UsageError{Err: fmt.Errorf("%s %q: want MODEL=NAME", flag, p)}
		}
		found := false
		for i := range f.o.Models {
			if f.o.Models[i].Name == model {
				add(&f.o.Models[i], name)
				found = true
			}
		}
		if !found {
			return cli.UsageError{Err: fmt.Errorf("%s %q: no --model %s", flag, p, model)}
		}
	}
	return nil
}
