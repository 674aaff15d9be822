package server

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

// Options configures one replica. Endpoints or Source is required, unless Config names an endpoints
// file.
type Options struct {
	Name string // of this replica, in status and logs
	Zone string // this replica's zone; endpoints of other zones cost slightly more and are read by others first
	// RevisionLabels name the revision of an endpoint: see endpoint.PoolOptions.
	RevisionLabels []string
	Version        string

	Listen string // ext_proc; default 0.0.0.0:9002
	Health string // gRPC health; default 0.0.0.0:9003, "-" for none
	Admin  string // metrics, health and status; default 127.0.0.1:9090
	// Control is the listener for administrative endpoints that act or expose requests, for remote
	// clients; "" opens none.
	Control, ControlToken string
	TLS                   listen.TLS
	XDS                   XDSOptions

	Endpoints string           // endpoints file; "": the one from the configuration's discovery
	Source    discovery.Opener // finds the endpoints instead of a file
	StateDir  string           // folder for the last list of Source, for starts without it; "" for none
	Config    string           // EndpointPickerConfig; "" for the default profile
	Models    []ModelOptions
	// ModelSource finds the files of models that engines serve and Models lacks. Without a Mode it
	// finds none.
	ModelSource modelfiles.Options

	ConfigText string // EndpointPickerConfig text, instead of Config
	Secret     string // of the replica group; seeds block keys
	TargetsKey []byte // 32 bytes; signs prefill and encode targets for sidecars; nil: unsigned
	Cluster    ClusterOptions
	Federation multicluster.Options

	Memory      int64         // memory limit in bytes; 0: limit of cgroup or machine, negative: none
	MaxBody     int           // bytes; default 64 MiB, at most a tenth of Memory
	BodyTimeout time.Duration // for the rest of a buffered body; default 1 min
	KVTransfer  kvtransfer.Policy
	PassControl bool         // allow engine control calls
	Trust       events.Trust // of engines
	// EventsListen lists addresses to which event publishers connect, tcp://host:port, the r-th for
	// rank r; empty: from the configuration. EventsAllow lists networks that may publish in
	// addition to endpoints.
	EventsListen      []string
	EventsAllow       []netip.Prefix
	MessageTimeout    time.Duration // the proxy's message_timeout, which bounds waits for capacity while it runs; default 5 s
	MaxMessageTimeout time.Duration // the proxy's max_message_timeout; 0: message_timeout cannot be extended
	LogDecisions      float64       // share of the decisions in the log, 0 to 1
	DecisionHeader    bool          // set request.HeaderDecision in answers to clients
	WorkTimeout       time.Duration // for the work of a decision, after which only load counts; default 1 s
	// FlightDir is a folder for flight records; "" keeps them in memory. FlightTrace is the length of
	// their execution trace, 0 for none. A decision that takes SlowDecision makes one; 0 for never.
	FlightDir                 string
	FlightTrace, SlowDecision time.Duration
	AllowModeOverride         bool
	Gateway                   extproc.Gateway // destination formats that the proxy accepts
	// PickListen is the listener for proxies without external processing; "" for none. Outside
	// loopback PickToken is required.
	PickListen, PickToken string
	PickEnds              string // host:port or unix:PATH for access log lines of such proxies, which end picks; "" for none
	PickExpiry            time.Duration
	// MetricsCompat also serves other pickers' metrics, for a pool named MetricsPool.
	MetricsCompat bool
	MetricsPool   string
	// AnswerModel selects the model name in responses to rewritten requests.
	AnswerModel      extproc.AnswerModel
	Destinations     int  // addresses per response; 0: as Gateway requires
	IgnoreSubset     bool // ignore the proxy's endpoint subset
	FallbackMetadata bool
	FullReport       bool          // request full reuse reports from vLLM engines with incomplete event data
	PlaceUnknown     bool          // dispatch requests for unknown models; false responds 404
	Engines          EngineOptions // how engines are reached
	EngineKeyFile    string        // API key for engines (--api-key); reloaded by Reload; "": none
	ProbeRendering   bool          // compare each engine's rendering of fixed chats with the local template
	ProbeIdle        time.Duration // idle time after which an engine is probed; 0: never
	RefuseKillers    bool          // reject prompts that were in flight at two engines when these died
	PassModels       bool          // forward GET /v1/models to an engine; false responds with all models
	SizeTarget       sizing.Target // of the metric of wanted endpoints; zero: no metric
	SampleBodies     float64       // share of response bodies to inspect; default .05, negative none
	Continuations    int           // endpoints named to sidecars for continuations of streams; 0: none
	Speculate        time.Duration // how long a decision counts as cached before events confirm it; default 5 s
	ScrapeSlow       time.Duration // default 1 s
	ScrapeFast       time.Duration // default 200 ms
	ReadyTimeout     time.Duration // time until ready even if degraded; default 15 s
	Keep             time.Duration // how long a removed endpoint can be reinstated; default 1 min, negative none
	Linger           time.Duration // pause while draining, for health checks to notice; default 2 s, negative none
	Drain            time.Duration // time for streams to end; default 20 s

	// Shared are the parts of a process that serves several pools; nil: it serves this one only.
	Shared *Shared

	Plugins plugin.Table // types for configurations; default: Grapevine's

	// Started is when the process started, from which ReadyTimeout counts; zero: now.
	Started   time.Time
	Log       *slog.Logger
	LogWriter *cli.LogWriter // its lost lines are counted in a metric; nil: none
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

// adminAddr returns the address of the administration listener, "" if the process has it.
func (s *Server) adminAddr() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.Addr().String()
}
