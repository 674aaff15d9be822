package server

import (
	"errors"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"log/slog"
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// Options describe one replica. Endpoints or Source is required, unless Config
// names a file of endpoints.
type Options struct {
	Name    string // of this replica, in status and logs
	Zone    string // where it runs; endpoints of another zone are a little dearer, and read by others first
	Version string

	Listen string // ext_proc; default 0.0.0.0:9002
	Health string // gRPC health; default 0.0.0.0:9003, "-" for none
	Admin  string // metrics, health and status; default 127.0.0.1:9090
	// Control is a listener of what acts or tells of requests, for clients that are
	// not on this machine; "" opens none.
	Control, ControlToken string
	TLS                   listen.TLS
	XDS                   XDSOptions

	Endpoints string           // endpoints file; "": the one that the configuration's discovery names
	Source    discovery.Opener // finds the endpoints, instead of a file
	Config    string           // EndpointPickerConfig; "" for the default profile
	Models    []ModelOptions

	ConfigText string // an EndpointPickerConfig itself, instead of Config
	Secret     string // of the replica group: seeds block keys
	TargetsKey []byte // 32 bytes; signs prefill and encode targets for sidecars; nil: unsigned
	Cluster    ClusterOptions
	Federation multicluster.Options

	Memory      int64         // bytes that the process may use; 0: what cgroup or machine allow, negative: without limit
	MaxBody     int           // bytes; default 64 MiB, at most a tenth of Memory
	BodyTimeout time.Duration // for the rest of a body that is held; default 1 min
	Handover    kvtransfer.Policy
	PassControl bool         // pass on calls that control engines
	Trust       events.Trust // of engines
	// EventsListen is where publishers of events dial in, tcp://host:port, the r-th for
	// those of rank r; none: what the configuration says. EventsAllow may publish besides endpoints.
	EventsListen      []string
	EventsAllow       []netip.Prefix
	MessageTimeout    time.Duration // the proxy's message_timeout, which bounds waits for capacity where it runs; default 5 s
	MaxMessageTimeout time.Duration // the proxy's max_message_timeout; 0: message_timeout cannot be prolonged
	WorkTimeout       time.Duration // for the work of a decision, after which load alone decides; default 1 s
	AllowModeOverride bool
	Gateway           extproc.Gateway // what the proxy takes as a destination
	// PickListen answers proxies that do not speak external processing; "" for none.
	// Beyond loopback PickToken is required.
	PickListen, PickToken string
	PickEnds              string // host:port or unix:PATH: lines of such proxies' access logs, which end picks; "" for none
	PickExpiry            time.Duration
	// MetricsCompat also serves the metrics of other pickers, of a pool of that name.
	MetricsCompat bool
	MetricsPool   string
	// AnswerModel is whose name of the model answers carry when it was rewritten.
	AnswerModel      extproc.AnswerModel
	Destinations     int  // addresses named in one answer; 0 leaves it to Gateway
	IgnoreSubset     bool // of endpoints that the proxy names
	FallbackMetadata bool
	FullReport       bool          // ask vLLM engines to announce reused blocks again where too little is known
	PlaceUnknown     bool          // place requests for models that nobody serves; false answers them 404
	EngineKeyFile    string        // what engines are shown that want a key (--api-key); read again by Reload; "": nothing
	ProbeRendering   bool          // ask each engine what it makes of fixed chats, to compare that with the template here
	ProbeIdle        time.Duration // after which an engine that nobody asks is probed; 0: never
	RefuseKillers    bool          // refuse prompts that failed at several engines and were answered by none since
	PassModels       bool          // send GET /v1/models to an engine; false answers with the models of all
	SampleBodies     float64       // share of responses whose body is looked at; default .05, negative none
	Speculate        time.Duration // how long a decision counts as cached before events confirm it; default 5 s
	ScrapeSlow       time.Duration // default 1 s
	ScrapeFast       time.Duration // default 200 ms
	ReadyTimeout     time.Duration // ready, though degraded, after this; default 15 s
	Keep             time.Duration // an endpoint that leaves the list comes back within it as it was; default 1 min, negative none
	Linger           time.Duration // draining, for health checkers to see it; default 2 s, negative none
	Drain            time.Duration // for streams to end; default 20 s

	Plugins plugin.Table // types that configurations may name; default: those of Grapevine

	// Started is when the process started, from which on ReadyTimeout counts; zero: now.
	Started   time.Time
	Log       *slog.Logger
	LogWriter *cli.LogWriter // whose lost lines a metric counts; nil: none
}

// ModelOptions is one base model.
type ModelOptions = prefix.ModelOptions

var errNoEndpoints = errors.New("server: no endpoints file is given, and no file-discovery in the configuration names one")

func (o *Options) complete() error {
	if o.Endpoints == "" && o.Source == nil && o.Config == "" && o.ConfigText == "" {
		return errNoEndpoints
	}
	if o.Plugins == nil {
		o.Plugins = pd.Table()
	}
	text := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	text(&o.Listen, "0.0.0.0:9002")
	text(&o.Health, "0.0.0.0:9003")
	text(&o.Admin, "127.0.0.1:9090")
	text(&o.Name, "grapevine")
	text(&o.Version, "dev")
	if o.Health == "-" {
		o.Health = ""
	}
	for _, d := range []struct {
		v         *time.Duration
		otherwise time.Duration
	}{{&o.Speculate, 5 * time.Second}, {&o.ReadyTimeout, 15 * time.Second}, {&o.Drain, 20 * time.Second}} {
		if *d.v <= 0 {
			*d.v = d.otherwise
		}
	}
	if o.Keep == 0 {
		o.Keep = time.Minute
	}
	if o.Linger == 0 {
		o.Linger = 2 * time.Second
	}
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
