package config

import (
	"os"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Names of the format.
const (
	groupGateway = "inference.networking.x-k8s.io/v1alpha1"
	groupLLMD    = "llm-d.ai/v1alpha1"
	groupStable  = "llm-d.ai/v1" // places what replicas share elsewhere; both places are read in all versions
	kindName     = "EndpointPickerConfig"

	defaultProfile  = "default"
	defaultScorer   = "predicted-ttft-scorer"
	defaultPicker   = "max-score-picker"
	defaultHandler  = "single-profile-handler"
	defaultDetector = "utilization-detector"
	defaultFairness = "global-strict-fairness-policy"
	defaultOrdering = "fcfs-ordering-policy"
	gateFlowControl = "flowControl"
)

// Problem is one fault in a file.
type Problem = strict.Problem

// Options say what a file may name.
type Options struct {
	// Table holds the plugin types; nil means plugins.Builtin(), which has no
	// prefill/decode handlers (pd.Table has).
	Table plugin.Table
}

// Config is one file, checked and built.
type Config struct {
	File     string
	Rules    *picker.Rules
	Profiles []*cycle.Profile

	// Detector judges saturation, for admission and queues.
	Detector     plugin.Detector
	DetectorName string
	// GaugeAge is the age from which the detector does not trust an engine's
	// gauges; 0 when it does not say. Gauges have to be read more often.
	GaugeAge time.Duration

	// Metrics say how engines' metrics pages are read.
	Metrics Metrics

	// ReportServed asks for the header by which conformance tests of gateways
	// learn who served.
	ReportServed bool

	// Trust says whose intent headers count; nil means everybody's.
	Trust *request.Trust

	Producer  plugin.Producer       // what the plugins say about index and sessions, merged
	Discovery *plugin.FileDiscovery // nil: the file does not say
	Flow      *Flow                 // nil: requests are not to wait
	Gates     map[string]bool       // as written

	// Notes are about parts that are accepted but work differently here.
	Notes []Problem

	effective effective
}

// Load reads the file at path.
func Load(path string, o Options) (*Config, []Problem) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, []Problem{{File: path, Message: cause(err)}}
	}
	return Parse(path, data, o)
}

// Parse reads the bytes of a file; name is for problems. With any problem the
// Config is nil.
func Parse(name string, data []byte, o Options) (*Config, []Problem) {
	root, report := strict.Parse(name, data)
	if !root.Found() {
		return nil, report.Problems()
	}
	b := newBuilder(name, report, o)
	b.document(root)
	if report.Len() > 0 {
		return nil, report.Problems()
	}
	return b.config(), nil
}

// Default returns what holds without a file: one profile with the
// predicted-ttft-scorer and the max-score picker.
func Default(o Options) *Config {
	c, problems := Parse("default", []byte("apiVersion: "+groupGateway+"\nkind: "+kindName+"\n"), o)
	if len(problems) > 0 {
		panic("config: the default has problems: " + problems[0].String())
	}
	return c
}
