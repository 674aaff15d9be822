package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.yaml.in/yaml/v3"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Limits of flight records.
const (
	flightCount     = 8
	flightMemory    = 32 << 20 // bytes of all records in memory
	flightDisk      = 64 << 20 // bytes of all records in a folder
	flightDecisions = 200      // in one record
)

// flightSource makes the parts of flight records. It is safe for concurrent use.
type flightSource struct {
	Options   *Options // of this replica
	Started   time.Time
	Budget    *budget.Budget
	Registry  *prometheus.Registry
	Config    *configuration
	Reporter  *reporter
	Decisions *groupDecisions
	EngineKey func() string
}

// openFlight opens the flight recorder.
func openFlight(s flightSource) (*flightrecorder.Recorder, error) {
	o := flightrecorder.Options{
		Dir: s.Options.FlightDir, Trace: s.Options.FlightTrace, Count: flightCount, Bytes: flightMemory, DirBytes: flightDisk,
		Name: s.Options.Name, Secrets: s.secrets, Log: s.Options.Log, Registry: s.Registry,
		Parts: []flightrecorder.Part{
			{Name: "status.json", Make: s.status},
			{Name: "group.json", Make: s.group},
			{Name: "decisions.json", Make: s.decisions},
			{Name: "metrics.txt", Make: s.metrics},
			{Name: "config.yaml", Make: s.config},
			{Name: "settings.json", Make: s.settings},
			{Name: "versions.json", Make: s.versions},
		},
	}
	if s.Budget.Limit() > 0 { // decisions have half of this share
		o.Bytes = min(o.Bytes, s.Budget.Share(budget.Records)/4)
	}
	return flightrecorder.New(o)
}

// healthRecorder requests a flight record when a replica leaves the state ready, or leaves service
// because its timers run late.
type healthRecorder struct{ healthy bool }

// see handles the replica's present status, and why its timers run late, "" if they do not.
func (h *healthRecorder) see(st *Status, late string, flight *flightrecorder.Recorder) {
	healthy := st.State == "ready" && late == ""
	if h.healthy && !healthy && st.State != "draining" {
		flight.Trigger(flightrecorder.Health, "ready, then "+cmp.Or(late, st.State+": "+st.Reason))
	}
	h.healthy = healthy
}

func (s *flightSource) status(context.Context) ([]byte, error) {
	return s.shareable(s.Reporter.status())
}

// group returns the group as this replica sees it.
func (s *flightSource) group(context.Context) ([]byte, error) {
	var g struct {
		ID      string         `json:"id"`
		Cluster ClusterStatus  `json:"cluster"`
		Members []MemberStatus `json:"members"`
	}
	g.ID = s.Reporter.Node.Self().ID
	g.Cluster, g.Members = s.Reporter.clusterStatus()
	return s.shareable(g)
}

// decisions returns the last decisions of this replica.
func (s *flightSource) decisions(ctx context.Context) ([]byte, error) {
	list, _ := s.Decisions.find(ctx, "", flightDecisions, true)
	return s.shareable(list)
}

// metrics returns this replica's own metrics. Metrics in the form of other pickers have labels
// that clients choose.
func (s *flightSource) metrics(context.Context) ([]byte, error) {
	families, err := s.Registry.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// config returns the configuration with all defaults, without secrets.
func (s *flightSource) config(context.Context) ([]byte, error) {
	text, err := s.Config.current().Effective()
	if err != nil {
		return nil, err
	}
	return withoutSecrets(text)
}

func (s *flightSource) settings(context.Context) ([]byte, error) {
	out := map[string]any{}
	settings(reflect.ValueOf(*s.Options), "", out)
	return json.MarshalIndent(out, "", "  ")
}

// versions returns what this process was built from and runs on.
func (s *flightSource) versions(context.Context) ([]byte, error) {
	out := map[string]any{
		"version": s.Options.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "cpus": runtime.NumCPU(), "gomaxprocs": runtime.GOMAXPROCS(0),
		"memory_limit": s.Budget.Limit(), "started": s.Started.UTC(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		modules := map[string]string{}
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
		out["modules"] = modules
		for _, set := range info.Settings {
			if strings.HasPrefix(set.Key, "vcs.") {
				out[set.Key] = set.Value
			}
		}
	}
	return json.MarshalIndent(out, "", "  ")
}

// secrets returns the secrets of this replica, as text.
func (s *flightSource) secrets() [][]byte {
	list := []string{s.Options.Secret, s.Options.ControlToken, s.Options.PickToken, s.EngineKey()}
	keys := append([][]byte{s.Options.TargetsKey}, s.Options.Cluster.Keys...)
	if token := s.Options.ModelSource.Token; token != nil {
		list = append(list, token())
	}
	for _, k := range keys {
		list = append(list, base64.StdEncoding.EncodeToString(k), hex.EncodeToString(k))
	}
	var out [][]byte
	for _, text := range list {
		if text != "" {
			out = append(out, []byte(text))
		}
	}
	return out
}

// shownSettings are the options with text that flight records have. Records say only that others
// are set, so that a new option with a secret is not shown.
var shownSettings = strings.Fields(`
	Name Zone Version Listen Health Admin Control Endpoints StateDir Config PickListen PickEnds EventsListen
	Gateway MetricsPool AnswerModel FlightDir KVTransfer.Allow
	XDS.Listen XDS.Listener XDS.Advertise TLS.ClientNames TLS.Min
	Cluster.Mode Cluster.Share Cluster.Bind Cluster.StreamBind Cluster.Advertise Cluster.StreamAdvertise Cluster.Join Cluster.Label Cluster.NATS
	ModelSource.Mode ModelSource.Offline ModelSource.Endpoint ModelSource.Cache
	Models.Name Models.Path Models.Aliases Models.Adapters`)

// settings adds the fields of a struct of options to out, by path.
func settings(v reflect.Value, at string, out map[string]any) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if !f.IsExported() || f.Type == reflect.TypeFor[plugin.Table]() { // its types are in the documentation
			continue
		}
		path := strings.TrimPrefix(at+"."+f.Name, ".")
		switch value.Kind() {
		case reflect.Bool, reflect.Float64:
			out[path] = value.Interface()
		case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint64:
			out[path] = fmt.Sprint(value.Interface())
		case reflect.String:
			if value.String() != "" {
				out[path] = shownText(path, value.String())
			}
		case reflect.Slice:
			settingsOfSlice(value, path, out)
		case reflect.Struct:
			if _, isTime := value.Interface().(time.Time); !isTime {
				settings(value, path, out)
			}
		default: // functions, interfaces and pointers
		}
	}
}

func settingsOfSlice(list reflect.Value, path string, out map[string]any) {
	var texts []string
	for i := range list.Len() {
		switch e := list.Index(i); {
		case e.Kind() == reflect.String:
			texts = append(texts, shownText(path, e.String()))
		case e.Type() == reflect.TypeFor[netip.Prefix]():
			texts = append(texts, fmt.Sprint(e.Interface()))
		case e.Kind() == reflect.Struct:
			inner := map[string]any{}
			settings(e, path, inner)
			out[fmt.Sprintf("%s[%d]", path, i)] = inner
		}
	}
	if texts != nil {
		out[path] = texts
	}
}

func shownText(path, text string) string {
	if !slices.Contains(shownSettings, path) {
		return "(set)"
	}
	return withoutUser(text)
}

// withoutUser removes user and password from a URL.
func withoutUser(text string) string {
	if u, err := url.Parse(text); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return text
}

// secretKey matches the names of fields that may hold secrets.
var secretKey = regexp.MustCompile(`(?i)(token|secret|passw|credential|authorization|api_?-?key|private)`)

// withoutSecrets removes texts of fields that may hold secrets, and users of URLs, from YAML.
func withoutSecrets(text []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	hideSecrets(&doc, false)
	return yaml.Marshal(&doc)
}

func hideSecrets(n *yaml.Node, hidden bool) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!str" {
			if n.Value = withoutUser(n.Value); hidden && n.Value != "" {
				n.Value = "(removed)"
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			hideSecrets(n.Content[i+1], hidden || secretKey.MatchString(n.Content[i].Value))
		}
	default:
		for _, c := range n.Content {
			hideSecrets(c, hidden)
		}
	}
}

// shareable returns v as JSON without texts that clients chose: header values, names of clients and
// unknown models.
func (s *flightSource) shareable(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var doc any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	h := hider{models: s.knowsModel}
	_, _ = rand.Read(h.key[:]) // never fails
	return json.MarshalIndent(h.hide("", doc), "", "  ")
}

// knowsModel reports whether a model is configured or listed by an engine.
func (s *flightSource) knowsModel(name string) bool {
	return slices.ContainsFunc(s.Reporter.Models.Status(), func(m prefix.ModelStatus) bool { return m.Name == name }) ||
		slices.ContainsFunc(s.Reporter.Pool.Snapshot().Endpoints, func(e *endpoint.Endpoint) bool { return e.Listed(name) || slices.Contains(e.Models, name) })
}

// hider replaces texts that clients chose. Within one document, equal texts have equal
// replacements.
type hider struct {
	key    [32]byte
	models func(name string) bool
}

// Texts that have names of clients or requests up to their end.
var (
	clientNames = regexp.MustCompile(`(?s)( of client |\(request ).*`)
	quoted      = regexp.MustCompile(`(?s)["'` + "`" + `].*["'` + "`" + `]`)
)

func (h *hider) hide(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if key == "headers" { // names of headers that the decision sets
				v[k] = "(removed)"
				continue
			}
			v[k] = h.hide(k, inner)
		}
	case []any:
		for i := range v {
			v[i] = h.hide(key, v[i])
		}
	case string:
		return h.text(key, v)
	}
	return v
}

func (h *hider) text(key, text string) string {
	switch {
	case text == "":
		return ""
	case key == "request_id", key == "flow":
		return h.pseudonym(text)
	case (key == "model" || key == "target") && !h.models(text):
		return h.pseudonym(text)
	case key == "refused":
		text = quoted.ReplaceAllString(text, "(removed)")
	}
	return clientNames.ReplaceAllString(text, "$1(removed)")
}

// pseudonym returns a name for a text that cannot be reversed, and that no other document has.
func (h *hider) pseudonym(text string) string {
	mac := hmac.New(sha256.New, h.key[:])
	mac.Write([]byte(text))
	return "#" + hex.EncodeToString(mac.Sum(nil)[:5])
}
