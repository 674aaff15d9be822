package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// maxHead bounds request headers. Envoy forwards 60 KiB by default.
const maxHead = 128 << 10

// maxStreams bounds the requests of an HTTP/2 connection.
const maxStreams = 100

// flags are the flags of sidecar.
type flags struct {
	o            sidecar.Options
	host         string
	port         int
	enginePort   int
	oldPort      int
	ranks        int
	connector    string
	allow        []string
	endpoints    string
	verifyKeys   string
	kvTransfer   string
	allowMembers []string
	secure       bool
	certs        string
	tlsStages    []string
	metrics      string
	linger       time.Duration
	drain        time.Duration
	logFormat    string
	logLevel     string

	more  moreFlags
	given func(flag string) bool
	log   *slog.Logger
}

// New returns the command that runs the proxy.
func New() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "sidecar",
		Short: "Run the proxy beside a decode engine",
		Long: `Runs next to a decode engine, in front of it. If the picker has chosen a prefill
engine, it has that one compute the prompt, hands the KV cache over and streams the
decode engine's answer; everything else it passes on. A prefill that fails is tried at
the next engine named, then computed by the decode engine itself.

Whom it calls is checked with --verify-key-file (targets signed by the picker, see serve
--targets-key-file), --endpoints or --allow, or both: what is signed must be listed too.
With none of them it calls whatever the picker's headers name, and warns at start. The flags of existing routing sidecars
are accepted under their names.`,
		Example: `  grapevine sidecar --port 8000 --model-server-port 8200 --verify-key-file targets.pub
  grapevine sidecar --kv-connector sglang --allow 10.0.1.5:8000,10.0.1.6:8000 --secure-proxy=false`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.more.read(cmd.Flags()); err != nil {
				return err
			}
			return f.run(cmd.Context())
		},
	}
	fl := cmd.Flags()
	f.given = fl.Changed
	fl.StringVar(&f.host, "host", "0.0.0.0", "address to listen on")
	fl.IntVar(&f.port, "port", 8000, "port to listen on; rank r on port + r")
	fl.StringVar(&f.o.Engine, "engine", "", "base URL of the decode engine (default: http://127.0.0.1 with --model-server-port)")
	fl.IntVar(&f.enginePort, "model-server-port", 8200, "port of the decode engine; rank r on port + r")
	fl.IntVar(&f.oldPort, "vllm-port", 0, "older name of --model-server-port")
	fl.IntVar(&f.ranks, "data-parallel-size", 1, "number of data-parallel ranks of the engine, each with its own port")
	fl.StringVar(&f.connector, "kv-connector", "nixlv2", "KV transfer protocol: nixlv2, shared-storage (also lmcache), sglang, mooncake, offloading or trtllm")
	fl.IntVar(&f.o.BootstrapPort, "bootstrap-port", 8998, "sglang: bootstrap port of prefill engines (default also from SGLANG_BOOTSTRAP_PORT)")
	fl.BoolVar(&f.o.CacheHitThreshold, "cache-hit-threshold", false, "shared-storage: send cache_hit_threshold to engines that support it, and accept it from clients: decode then gets the request first")
	fl.StringSliceVar(&f.allow, "allow", nil, "host:port of an allowed engine, for any role (repeatable)")
	fl.StringVar(&f.endpoints, "endpoints", "", "endpoints file with allowed engines; an engine with a role label is used for that role only; reloaded on change")
	fl.StringVar(&f.verifyKeys, "verify-key-file", "", "file with base64 public keys of pickers, one per line; only targets signed with one of them are used; reloaded on change")
	fl.StringVar(&f.kvTransfer, "kv-transfer-fields", "strip", "how to treat KV transfer fields in client bodies: strip or refuse")
	fl.StringSliceVar(&f.allowMembers, "allow-member", nil, "KV transfer field that clients may send, such as cache_hit_threshold (repeatable)")
	fl.BoolVar(&f.o.WebSockets, "allow-websockets", false, "forward WebSockets to the engine without checking them for KV transfer fields")
	fl.DurationVar(&f.o.Lease, "lease", 30*time.Second, "how long prefill engines keep unread blocks; KV transfers are used for two thirds of this time")
	fl.DurationVar(&f.o.Prefill, "prefill-timeout", 2*time.Minute, "for one prefill leg")
	fl.DurationVar(&f.o.Head, "head-timeout", 2*time.Minute, "how often a decode engine is checked for a hang while an answer has not begun; waiting in its queue has no limit")
	fl.DurationVar(&f.o.SuspectWait, "suspect-wait", 3*time.Minute, "how long a request whose prompt may have crashed an engine waits for the restart of this engine, before another engine computes it; longer than engines need to start")
	fl.BoolVar(&f.o.NoFallback, "no-fallback", false, "fail requests that no prefill engine can serve, instead of prefilling them at decode")
	fl.BoolVar(&f.o.Continue, "continue-streams", false, "continue the stream of a dead engine at the next engine chosen by the picker (serve --continuation-endpoints); vLLM only")
	fl.Int64Var(&f.o.MaxBody, "max-body", 64<<20, "largest request body in bytes")
	fl.BoolVar(&f.secure, "secure-proxy", true, "serve TLS")
	fl.StringVar(&f.certs, "cert-path", "", "folder with tls.crt and tls.key (default: self-signed)")
	fl.StringSliceVar(&f.tlsStages, "enable-tls", nil, "legs over TLS: prefiller, decoder, encoder, continuation (repeatable)")
	fl.StringVar(&f.metrics, "metrics", "127.0.0.1:9091", "listener of /metrics, /readyz and /healthz; - for none")
	fl.DurationVar(&f.linger, "linger", 3*time.Second, "how long to keep serving after SIGTERM, so that probes see /readyz fail")
	fl.DurationVar(&f.drain, "drain", 60*time.Second, "time limit for open requests after SIGTERM")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	f.more.register(fl, &f.o)
	return cmd
}

var connectors = map[string]sidecar.Connector{
	"nixlv2": sidecar.NIXL, "shared-storage": sidecar.Storage, "lmcache": sidecar.Storage, "sglang": sidecar.SGLang,
	"mooncake": sidecar.Mooncake, "offloading": sidecar.Offloading, "trtllm": sidecar.TRTLLM,
}

func (f *flags) complete() (err error) {
	f.more.older.apply(f)
	if f.log, err = cli.Stderr().Logger(f.logFormat, f.logLevel); err != nil {
		return err
	}
	f.o.Log = f.log
	var known bool
	if f.o.Connector, known = connectors[f.connector]; !known {
		return cli.UsageError{Err: fmt.Errorf("--kv-connector %q: want nixlv2, shared-storage, lmcache, sglang, mooncake, offloading or trtllm", f.connector)}
	}
	switch f.kvTransfer {
	case "strip":
		f.o.KVTransfer.Action = kvtransfer.Strip
	case "refuse":
		f.o.KVTransfer.Action = kvtransfer.Refuse
	default:
		return cli.UsageError{Err: fmt.Errorf("--kv-transfer-fields %q: want strip or refuse", f.kvTransfer)}
	}
	f.o.KVTransfer.Allow = f.allowMembers
	if f.o.CacheHitThreshold {
		f.o.KVTransfer.Allow = append(f.o.KVTransfer.Allow, "cache_hit_threshold")
	}
	if f.ranks < 1 || f.ranks > 64 {
		return cli.UsageError{Err: fmt.Errorf("--data-parallel-size %d: want 1 to 64", f.ranks)}
	}
	if f.o.Engine != "" && f.ranks > 1 {
		return cli.UsageError{Err: errors.New("--engine names one engine: with --data-parallel-size use --model-server-port")}
	}
	if f.oldPort != 0 {
		f.enginePort = f.oldPort
	}
	if port := os.Getenv("SGLANG_BOOTSTRAP_PORT"); port != "" && !f.given("bootstrap-port") {
		if f.o.BootstrapPort, err = strconv.Atoi(port); err != nil {
			return cli.UsageError{Err: fmt.Errorf("SGLANG_BOOTSTRAP_PORT: %w", err)}
		}
	}
	for _, stage := range f.tlsStages {
		if stage != "prefiller" && stage != "decoder" && stage != "encoder" && stage != "continuation" {
			return cli.UsageError{Err: fmt.Errorf("--enable-tls %q: want prefiller, decoder, encoder or continuation", stage)}
		}
		f.o.ContinueTLS = f.o.ContinueTLS || stage == "continuation"
		f.o.PrefillTLS, f.o.EncodeTLS = f.o.PrefillTLS || stage == "prefiller", f.o.EncodeTLS || stage == "encoder"
	}
	if f.o.Continue && (f.o.Connector == sidecar.SGLang || f.o.Connector == sidecar.TRTLLM) {
		return cli.UsageError{Err: fmt.Errorf("--continue-streams with --kv-connector %s is not supported: the engines do not report token ids", f.connector)}
	}
	if err := f.more.complete(f); err != nil {
		return err
	}
	if err := f.ports(); err != nil {
		return err
	}
	f.o.Targets, err = f.targets()
	return err
}

// ports checks the numbers of ports and retries.
func (f *flags) ports() error {
	last := 65536 - f.ranks // ranks have consecutive ports
	for _, p := range []struct {
		flag         string
		value, least int
	}{
		{"port", f.port, 0}, {"model-server-port", f.enginePort, 1}, {"bootstrap-port", f.o.BootstrapPort, 1}, {"mooncake-bootstrap-port", f.more.mooncakePort, 1},
		{"p2p-connector-port", f.o.P2PPort, 1}, {"metrics-port", f.more.metricsPort, 0},
		{"moriio-decode-notify-port", f.more.write.Notify[0], 1}, {"moriio-prefill-notify-port", f.more.write.Notify[1], 1},
		{"moriio-decode-handshake-port", f.more.write.Handshake[0], 1}, {"moriio-prefill-handshake-port", f.more.write.Handshake[1], 1},
	} {
		if p.value < p.least || p.value > last {
			return cli.UsageError{Err: fmt.Errorf("--%s %d: want %d to %d", p.flag, p.value, p.least, last)}
		}
	}
	if f.more.retries < 0 {
		return cli.UsageError{Err: fmt.Errorf("--prefill-max-retries %d: must not be negative", f.more.retries)}
	}
	return nil
}

// targets returns the allowed targets.
func (f *flags) targets() (sidecar.Targets, error) {
	listed, err := f.listed()
	switch {
	case err != nil:
		return nil, err
	case f.verifyKeys != "":
		keys, err := cli.ReadBase64(f.verifyKeys)
		if err != nil {
			return nil, fmt.Errorf("--verify-key-file: %w", err)
		}
		v, err := signed.NewVerifier(time.Now, keys...)
		if err != nil || len(keys) == 0 {
			return nil, fmt.Errorf("--verify-key-file: want base64 keys of 32 bytes: %w", err)
		}
		return sidecar.Signed{Verifier: v, Listed: listed}, nil
	case listed == nil:
		f.log.Warn("the sidecar connects to any address in the routing headers: set --verify-key-file, --endpoints or --allow")
		return nil, nil
	}
	return listed, nil
}

// listed returns the listed engines, nil if none are listed. Engines of the endpoints file have the
// roles of their labels.
func (f *flags) listed() (sidecar.Listed, error) {
	if f.endpoints == "" && len(f.allow) == 0 {
		return nil, nil
	}
	list := sidecar.Listed{}
	if f.endpoints != "" {
		eps, problems := discovery.Load(f.endpoints)
		if len(problems) > 0 {
			return nil, strict.Problems(problems)
		}
		for i := range eps {
			role := sidecar.AnyRole
			if label, told := eps[i].Labels[endpoint.LabelRole]; told {
				role = endpoint.RoleOf(label)
			}
			list[eps[i].HostPort()] |= role
		}
	}
	for _, a := range f.allow {
		list[a] = sidecar.AnyRole
	}
	return list, nil
}

func (f *flags) run(ctx context.Context) error {
	if err := f.complete(); err != nil {
		return err
	}
	defer cli.ExitAfter(ctx, f.linger+f.drain+time.Second, f.log)()
	if f.o.Targets != nil {
		var watching sync.WaitGroup
		ctx, end := context.WithCancel(ctx)
		defer func() { end(); watching.Wait() }()
		f.o.Targets = f.follow(ctx, f.o.Targets, &watching)
	}
	secure, err := f.tls()
	if err != nil {
		return err
	}
	limit, _ := budget.Memory()
	f.o.Budget = budget.New(limit)
	f.o.Budget.Apply()
	reg := prometheus.NewRegistry()
	if err := cli.Stderr().Register(reg); err != nil {
		return err
	}
	f.o.Tracer = tracing.Open(tracing.Options{Service: "grapevine-sidecar", Registerer: reg, Log: f.log})
	defer closeTracer(f.o.Tracer)
	listeners := budget.NewListeners(f.o.Budget, reg)
	var servers, side []*http.Server
	ranks := sidecar.Ranks{Port: f.port}
	ended := make(chan error, f.ranks+1)
	start := func(to *[]*http.Server, address string, h http.Handler, cfg *tls.Config, limit func(net.Listener) net.Listener) error {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		l = limit(l)
		if cfg != nil {
			l = tls.NewListener(l, cfg)
		}
		s := &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: maxHead, IdleTimeout: 5 * time.Minute, ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug)}
		s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
		*to = append(*to, s)
		f.log.Info("listening", "address", l.Addr().String())
		go func() { ended <- s.Serve(l) }()
		return nil
	}
	defer func() {
		for _, s := range append(servers, side...) {
			s.Close()
		}
	}()
	for rank := range f.ranks {
		h, err := f.rank(rank, prometheus.WrapRegistererWith(prometheus.Labels{"rank": strconv.Itoa(rank)}, reg))
		if err != nil {
			return err
		}
		ranks.Servers = append(ranks.Servers, h)
	}
	requests := func(l net.Listener) net.Listener { return listeners.LimitRequests("sidecar", 2*f.ranks, l) } // legs use file descriptors as well
	probes := func(l net.Listener) net.Listener { return listeners.LimitShort("admin", 16, l) }
	for rank := range ranks.Servers {
		if err := start(&servers, net.JoinHostPort(f.host, strconv.Itoa(f.port+rank)), ranks.At(rank), secure, requests); err != nil {
			return err
		}
	}
	if f.metrics != "-" && f.metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
		mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("GET /readyz", ranks.Servers[0].Ready)
		for rank, p := range ranks.Servers {
			mux.HandleFunc(fmt.Sprintf("GET /readyz/%d", rank), p.Ready)
		}
		if err := start(&side, f.metrics, mux, nil, probes); err != nil {
			return err
		}
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	return f.stop(ranks.Servers, servers)
}

// stop reports not ready, waits for checkers to notice, and lets open requests end.
func (f *flags) stop(proxies []*sidecar.Server, servers []*http.Server) error {
	f.log.Info("draining")
	for _, p := range proxies {
		p.Drain()
	}
	<-time.After(f.linger)
	ctx, cancel := context.WithTimeout(context.Background(), f.drain)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() { _ = s.Shutdown(ctx) }) // requests that have not ended by then are closed
	}
	wg.Wait()
	return nil
}

// flushTime bounds the export of the last spans. It is shorter than the second after which the
// process exits in any case.
const flushTime = 800 * time.Millisecond

// closeTracer exports the last spans.
func closeTracer(t *tracing.Tracer) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	t.Close(ctx)
}

// rank returns the proxy of one data-parallel rank.
func (f *flags) rank(rank int, reg prometheus.Registerer) (*sidecar.Server, error) {
	o := f.o
	o.Registerer = reg
	if o.Engine == "" {
		scheme := "http"
		if strings.Contains(strings.Join(f.tlsStages, ","), "decoder") {
			scheme = "https"
		}
		o.Engine = fmt.Sprintf("%s://127.0.0.1:%d", scheme, f.enginePort+rank)
	}
	return sidecar.New(o)
}

// tls returns the listeners' TLS settings, nil for plaintext.
func (f *flags) tls() (*tls.Config, error) {
	o := listen.TLS{Plaintext: !f.secure}
	if f.certs != "" {
		o.CertFile, o.KeyFile = filepath.Join(f.certs, "tls.crt"), filepath.Join(f.certs, "tls.key")
	}
	cfg, err := o.Config(f.log)
	if cfg != nil {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return cfg, err
}
