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
)

// serveFlags are the flags of serve.
type serveFlags struct {
	o          server.Options
	kube       kubeFlags
	federation federationFlags
	models     []string
	aliases    []string
	adapters   []string
	secret     string
	pickToken  string
	targetsKey string
	// controlToken is the file of the control listener's token.
	controlToken string
	memory       string
	handover     string
	keys         []string
	logFormat    string
	logLevel     string
	eventsAllow  []string
	// unknownModel is what becomes of requests for a model that nobody serves.
	unknownModel string
	given        func(flag string) bool
}

func newServe(p Program) *cobra.Command {
	var f serveFlags
	f.o.Version, f.o.Plugins, f.kube.version = p.Version, p.Plugins, p.Version
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one replica of the endpoint picker",
		Long: `Runs one replica: answers Envoy's external processing, follows the engines' KV-cache
events and metrics, and serves metrics and status. SIGHUP reads configuration, models and the
group's keys again; SIGTERM drains: proxies are told, open requests end, then the process does.`,
		Example: `  grapevine serve --endpoints endpoints.yaml --model qwen3=/models/Qwen3-8B
  grapevine serve --endpoints endpoints.yaml --config epp.yaml --tls-cert tls.crt --tls-key tls.key`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	fl := cmd.Flags()
	f.given = fl.Changed
	fl.StringVar(&f.o.Name, "name", hostname(), "name of this replica")
	fl.StringVar(&f.o.Zone, "zone", "", "zone that this replica runs in, as endpoints' labels topology.kubernetes.io/zone name theirs (default: $ZONE)")
	fl.StringVar(&f.o.Endpoints, "endpoints", "", "endpoints file, read again when it changes (required, unless --config names one in dataLayer.discovery, or a flag a pool)")
	f.kube.add(fl)
	f.federation.add(fl)
	fl.StringVar(&f.o.Config, "config", "", "EndpointPickerConfig file (default: the built-in profile)")
	fl.StringVar(&f.o.ConfigText, "config-text", "", "the text of an EndpointPickerConfig, instead of --config")
	fl.StringArrayVar(&f.models, "model", nil, "NAME=FOLDER of a base model's tokenizer files (repeatable)")
	fl.StringArrayVar(&f.aliases, "model-alias", nil, "MODEL=NAME: a further name of a base model (repeatable)")
	fl.StringArrayVar(&f.adapters, "model-adapter", nil, "MODEL=NAME: a LoRA adapter of a base model (repeatable)")
	fl.StringVar(&f.targetsKey, "targets-key-file", "", "file with a base64 key of 32 bytes that signs prefill and encode targets for sidecars; its public half is logged")
	fl.StringVar(&f.secret, "secret-file", "", "file with the replica group's secret")
	f.clusterFlags(fl)
	fl.StringVar(&f.o.Listen, "listen", "0.0.0.0:9002", "ext_proc listener")
	fl.StringVar(&f.o.XDS.Listen, "xds-listen", "", "xDS listener for Envoys that follow pool and replicas, TLS as for ext_proc (default: none)")
	fl.StringVar(&f.o.XDS.Listener, "xds-listener", "", "ip:port on which such an Envoy listens for clients: gives it listener and clusters too")
	fl.StringVar(&f.o.XDS.Advertise, "advertise", "", "ip:port under which Envoy reaches this replica's ext_proc listener (default: its own address)")
	fl.StringVar(&f.o.Health, "health", "0.0.0.0:9003", "gRPC health listener; - for none")
	fl.StringVar(&f.o.Admin, "admin", "127.0.0.1:9090", "metrics, health and status listener; whatever acts or reveals requests is served there to this machine alone")
	fl.StringVar(&f.o.Control, "control", "", "listener of reload, explain, record, decisions and profiles for clients elsewhere: unix:PATH, or host:port, which beyond loopback wants TLS and --control-token-file or --client-ca (default: none)")
	fl.StringVar(&f.controlToken, "control-token-file", "", "file with the token that lets clients in at --control")
	fl.StringVar(&f.o.PickListen, "pick-listen", "", "listener that answers proxies which do not speak external processing, over HTTP; beyond loopback with --pick-token-file (default: none)")
	fl.StringVar(&f.o.PickEnds, "pick-ends", "", "datagram listener, host:port or unix:PATH, for lines of such proxies' access logs, which say that picks have ended (default: none)")
	fl.StringVar(&f.pickToken, "pick-token-file", "", "file with the token that such proxies show")
	fl.DurationVar(&f.o.PickExpiry, "pick-expiry", 10*time.Minute, "age at which a pick whose end was not reported counts as ended")
	fl.BoolVar(&f.o.MetricsCompat, "metrics-compat", false, "also serve the metrics of other endpoint pickers, by their names and labels")
	fl.StringVar(&f.o.MetricsPool, "metrics-pool", "", "the pool's name in the labels of those metrics (default: --pool-name, or grapevine)")
	fl.BoolVar(&f.o.TLS.Plaintext, "plaintext", false, "no TLS on the ext_proc listener")
	fl.StringVar(&f.o.TLS.CertFile, "tls-cert", "", "certificate file, read again when it changes (default: self-signed)")
	fl.StringVar(&f.o.TLS.KeyFile, "tls-key", "", "key file")
	fl.IntVar(&f.o.MaxBody, "max-body", 64<<20, "largest request body in bytes, at most a tenth of --memory; more is answered with 413")
	fl.StringVar(&f.memory, "memory", "", "memory that the process may use, such as 1GiB (default: the limit of its cgroup, or the machine's memory)")
	fl.DurationVar(&f.o.BodyTimeout, "body-timeout", extproc.DefaultBodyTimeout, "how long the rest of a request body may take once a part of it is held")
	fl.StringVar(&f.handover, "handover-members", "refuse", "what happens to requests whose bodies hold members that hand over caches between engines: refuse (400) or strip")
	fl.StringSliceVar(&f.o.Handover.Allow, "handover-allow", nil, "such members that clients may send (repeatable)")
	fl.BoolVar(&f.o.PassControl, "pass-control", false, "pass on calls that control an engine rather than use it, such as /flush_cache, /sleep and /v1/load_lora_adapter, instead of answering 403")
	fl.DurationVar(&f.o.MessageTimeout, "message-timeout", extproc.DefaultMessageTimeout, "the proxy's message_timeout: where it keeps bodies back, requests wait for capacity less long than this")
	fl.DurationVar(&f.o.MaxMessageTimeout, "max-message-timeout", 0, "the proxy's max_message_timeout: it is asked for this much when a request begins to wait (0: it allows no more than message_timeout)")
	fl.DurationVar(&f.o.WorkTimeout, "work-timeout", picker.DefaultWorkTimeout, "time limit for a decision's work, after which load alone decides; less than the proxy's message timeout")
	fl.StringVar(&f.o.TLS.ClientCA, "client-ca", "", "certificate authorities that sign proxies' certificates, read again when the file changes; other proxies are refused on the ext_proc and xDS listeners (default: any proxy)")
	fl.StringSliceVar(&f.o.TLS.ClientNames, "client-name", nil, "SPIFFE or DNS name that a proxy's certificate must carry, with --client-ca (repeatable)")
	fl.StringVar(&f.o.TLS.Min, "tls-min", "1.2", "oldest TLS version on these listeners: 1.2 or 1.3")
	fl.BoolVar(&f.o.Trust.AnyHost, "discover-any-host", false, "let engines name event streams on other hosts than their own")
	fl.StringSliceVar(&f.o.EventsListen, "events-listen", nil, "tcp://host:port at which engines that publish by connecting dial in, the r-th for those of rank r (repeatable; default: kvEventsConfig.zmqEndpoint of the configuration, else none)")
	fl.StringSliceVar(&f.eventsAllow, "events-allow", nil, "address or CIDR, besides endpoints, that may dial in there and publish for the endpoints that its topics name (repeatable)")
	fl.BoolVar(&f.o.AllowModeOverride, "mode-override", true, "ask for single response bodies where the proxy's filter allows it")
	fl.StringVar((*string)(&f.o.Gateway), "gateway", "auto", "the proxy, for what it takes as a destination: "+strings.Join(extproc.GatewayNames(), ", "))
	fl.IntVar(&f.o.Destinations, "destinations", 0, "addresses named in one answer (default: 1, or as many as the gateway or proxy says it takes)")
	fl.StringVar((*string)(&f.o.AnswerModel), "answer-model", "auto", "whose name of the model answers carry when it was rewritten: client (answers then pass through the picker), engine, or auto (the client's in full duplex)")
	fl.BoolVar(&f.o.IgnoreSubset, "ignore-subset", false, "choose among all endpoints, whatever subset the proxy names")
	fl.BoolVar(&f.o.FallbackMetadata, "fallback-metadata", false, "also send the older fallback metadata key")
	fl.BoolVar(&f.o.RefuseKillers, "refuse-killers", false, "refuse prompts that failed at several engines in the last two minutes and were answered by none")
	fl.StringVar(&f.unknownModel, "unknown-model", "reject", "requests for a model that no engine serves: reject (404), once every engine's list proves it, or place")
	fl.BoolVar(&f.o.PassModels, "pass-models", false, "send GET /v1/models to an engine instead of answering with the models of all")
	fl.BoolVar(&f.o.FullReport, "full-report", true, "let single requests (one in 50) have vLLM engines announce what they reuse, where too little is known of them")
	fl.Float64Var(&f.o.SampleBodies, "sample-bodies", .05, "share of responses whose body is looked at; negative for none")
	fl.DurationVar(&f.o.Speculate, "speculate", 5*time.Second, "how long a decision counts as cached before events confirm it")
	fl.DurationVar(&f.o.ScrapeSlow, "scrape-slow", time.Second, "interval between readings of an engine's metrics")
	fl.DurationVar(&f.o.ScrapeFast, "scrape-fast", 200*time.Millisecond, "the same while an engine is near saturation")
	fl.DurationVar(&f.o.ReadyTimeout, "ready-timeout", 15*time.Second, "how long to wait for full knowledge before reporting ready without it")
	fl.DurationVar(&f.o.Drain, "drain", 20*time.Second, "how long open requests may take to end after SIGTERM")
	fl.DurationVar(&f.o.Linger, "linger", 2*time.Second, "part of --drain during which proxies learn that this replica is going and new requests are still taken")
	f.engineFlags(fl)
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// engineFlags are those of what engines are asked by the replica itself.
func (f *serveFlags) engineFlags(fl *pflag.FlagSet) {
	fl.StringVar(&f.o.EngineKeyFile, "engine-key-file", "", "file with the key that engines want (--api-key there): shown to endpoints when they are asked for models, event streams, health or rendering, or sent warm-ups; read again on SIGHUP; clients show it themselves")
	fl.DurationVar(&f.o.ProbeIdle, "probe-idle", 30*time.Second, "how long an engine shows no work until it is asked for eight tokens, to see that it still answers; 0 never asks")
	fl.BoolVar(&f.o.ProbeRendering, "probe-rendering", true, "ask each engine, every ten minutes and when its answers raise a doubt, what it makes of three fixed chats, and say where the template here makes something else of them")
}

// clusterFlags are those of the replica group.
func (f *serveFlags) clusterFlags(fl *pflag.FlagSet) {
	c := &f.o.Cluster
	fl.StringVar(&c.Mode, "cluster", "none", "how replicas share: none, gossip or nats")
	fl.StringVar(&c.Share, "share", "auto", "who reads an engine's events: mesh (every replica), partitioned (one owner each) or auto (mesh up to 32 streams)")
	fl.StringArrayVar(&f.keys, "cluster-key-file", nil, "file with base64 keys of 16, 24 or 32 bytes, one a line; the first encrypts, all decrypt; read again when it changes and on SIGHUP (repeatable)")
	fl.StringVar(&c.Label, "cluster-label", "grapevine", "name of the group; others are refused")
	fl.StringSliceVar(&c.Join, "cluster-join", nil, "gossip: members to join, host:port; a name stands for all its addresses (repeatable)")
	fl.StringVar(&f.kube.peers, "cluster-peers-service", "", "gossip: Kubernetes Service, NAME or NAMESPACE/NAME, whose EndpointSlices name members to join")
	fl.StringVar(&c.Bind, "cluster-bind", "", "gossip: listener (default 0.0.0.0:7946)")
	fl.StringVar(&c.StreamBind, "cluster-stream-bind", "", "gossip: listener of the streams (default port 7947)")
	fl.StringVar(&c.Advertise, "cluster-advertise", "", "gossip: host or host:port under which others reach this replica")
	fl.BoolVar(&c.TCPOnly, "cluster-tcp-only", false, "gossip: no UDP")
	fl.StringSliceVar(&c.NATS, "nats", nil, "nats: server URLs (repeatable)")
	fl.StringVar(&c.Credentials, "nats-creds", "", "nats: credentials file")
	fl.StringVar(&c.NKey, "nats-nkey", "", "nats: nkey seed file")
	fl.StringVar(&c.CertFile, "cluster-cert", "", "certificate file, read again when it changes; gossip: of the streams (default: made at start), nats: shown to the servers")
	fl.StringVar(&c.KeyFile, "cluster-cert-key", "", "its key file")
	fl.StringVar(&c.CAFile, "cluster-ca", "", "file with the certificate authorities that sign the other replicas' certificates (gossip) or the servers' (nats)")
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "grapevine"
	}
	return name
}

func (f *serveFlags) run(ctx context.Context) error {
	log, err := cli.Stderr().Logger(f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	defer cli.ExitAfter(ctx, f.o.Drain, log)()
	f.o.Log, f.o.LogWriter = log, cli.Stderr()
	if err := f.complete(); err != nil {
		return err
	}
	end, err := f.kube.findPeers(&f.o.Cluster, log)
	if err != nil {
		return err
	}
	defer end()
	s, err := server.Open(f.o)
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
				log.Error("reload refused; keeping the old configuration", "error", err)
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

// sources checks where configuration and endpoints come from.
func (f *serveFlags) sources() (err error) {
	if f.o.Config != "" && f.o.ConfigText != "" {
		return errors.New("--config and --config-text cannot be used together")
	}
	if f.o.Source, err = f.kube.source(f.given, f.o.Endpoints); err != nil {
		return err
	}
	if f.o.Endpoints == "" && f.o.Source == nil && f.o.Config == "" && f.o.ConfigText == "" {
		return errors.New("--endpoints is required, or --pool-name, or a --config whose dataLayer.discovery names a file")
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
func (f *serveFlags) complete() error {
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
		return cli.UsageError{Err: errors.New("--tls-cert and --tls-key go together")}
	}
	if _, known := extproc.FactsOf(f.o.Gateway); !known {
		return cli.UsageError{Err: fmt.Errorf("--gateway %q: want %s", f.o.Gateway, strings.Join(extproc.GatewayNames(), ", "))}
	}
	if !slices.Contains(extproc.AnswerModels(), string(f.o.AnswerModel)) {
		return cli.UsageError{Err: fmt.Errorf("--answer-model %q: want %s", f.o.AnswerModel, strings.Join(extproc.AnswerModels(), ", "))}
	}
	f.o.Zone = cmp.Or(f.o.Zone, os.Getenv("ZONE"))
	f.o.MetricsPool = cmp.Or(f.o.MetricsPool, f.kube.o.Pool, "grapevine")
	if f.o.Destinations < 0 {
		return cli.UsageError{Err: fmt.Errorf("--destinations %d: want 0 or more", f.o.Destinations)}
	}
	if c := &f.o.Cluster; (c.CertFile == "") != (c.KeyFile == "") {
		return cli.UsageError{Err: errors.New("--cluster-cert and --cluster-cert-key go together")}
	}
	switch f.unknownModel {
	case "reject", "place":
		f.o.PlaceUnknown = f.unknownModel == "place"
	default:
		return cli.UsageError{Err: fmt.Errorf("--unknown-model %s: want reject or place", f.unknownModel)}
	}
	switch f.handover {
	case "refuse":
	case "strip":
		f.o.Handover.Action = kvtransfer.Strip
	default:
		return cli.UsageError{Err: fmt.Errorf("--handover-members %q: want refuse or strip", f.handover)}
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
	if err := f.names(f.aliases, "--model-alias", func(m *server.ModelOptions, n string) { m.Aliases = append(m.Aliases, n) }); err != nil {
		return err
	}
	if f.o.Endpoints != "" {
		// Before the replica joins its group: a mistyped path should fail at once.
		if _, err := os.Stat(f.o.Endpoints); err != nil {
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

// group checks the flags of the replica group: one that does nothing in the
// mode that is asked for is most often a forgotten --cluster.
func (f *serveFlags) group() error {
	mode := f.o.Cluster.Mode
	for _, c := range []struct{ mode, flags string }{
		{"gossip", "cluster-join cluster-peers-service cluster-bind cluster-stream-bind cluster-advertise cluster-tcp-only"},
		{"nats", "nats nats-creds nats-nkey"},
		{"gossip or nats", "cluster-key-file cluster-label cluster-cert cluster-ca share"},
	} {
		for name := range strings.FieldsSeq(c.flags) {
			if f.given(name) && !strings.Contains(c.mode, mode) {
				return fmt.Errorf("--%s does nothing with --cluster %s: want --cluster %s", name, mode, c.mode)
			}
		}
	}
	switch c := &f.o.Cluster; {
	case mode != "none" && mode != "gossip" && mode != "nats":
		return fmt.Errorf("--cluster %q: want none, gossip or nats", mode)
	case mode != "none" && c.Label == "":
		return errors.New("--cluster-label is empty: want a name")
	case mode == "nats" && len(c.NATS) == 0:
		return errors.New("--cluster nats wants --nats URL")
	}
	return nil
}

// readKeys reads the group's keys: one in each line of each file.
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

// watchKeys reads the group's keys again when their files change, until ctx ends:
// where a Secret is mounted, a rotation needs nobody.
func (f *serveFlags) watchKeys(ctx context.Context, s *server.Server, log *slog.Logger) {
	for _, file := range f.keys {
		before, _ := os.ReadFile(file) // one that cannot be read has been refused
		go discovery.Watch(ctx, file, discovery.WatchOptions{Log: log}, func() {
			if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, before) {
				before = b
				f.rekey(s, log)
			}
		})
	}
}

// rekey gives a running replica the keys that the files hold at present.
func (f *serveFlags) rekey(s *server.Server, log *slog.Logger) {
	if len(f.keys) == 0 {
		return
	}
	keys, err := f.readKeys()
	if err == nil {
		err = s.SetKeys(keys)
	}
	if err != nil {
		log.Error("keys of the group refused; keeping the old ones", "error", err)
		return
	}
	log.Info("keys of the group read", "keys", len(keys))
}

// names enters MODEL=NAME pairs.
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
