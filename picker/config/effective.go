package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"go.yaml.in/yaml/v3"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// effective is the file with all defaults, in the current generation of fields.
type effective struct {
	APIVersion   string
	Kind         string
	FeatureGates []string
	Plugins      []effectivePlugin
	Profiles     []effectiveProfile
	Detector     string
	Discovery    string
	FlowControl  strict.Node // as in the file, without the detector
	Objectives   []effectiveObjective
	Rewrites     []effectiveRewrite
	Trust        *effectiveTrust
	Propagates   bool // requestHandler.propagatePriority
}

type effectivePlugin struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

type effectiveProfile struct {
	Name    string         `json:"name"`
	Plugins []effectiveRef `json:"plugins"`
}

type effectiveRef struct {
	PluginRef string   `json:"pluginRef"`
	Weight    *float64 `json:"weight,omitempty"`
}

type effectiveObjective struct {
	Name     string `json:"name"`
	Priority int    `json:"priority"`
}

type effectiveRewrite struct {
	Model   string            `json:"model"`
	Targets []effectiveTarget `json:"targets"`
}

type effectiveTarget struct {
	Model  string `json:"model"`
	Weight int    `json:"weight"`
}

func (e *effective) addRewrite(model string, targets request.Rewrite) {
	r := effectiveRewrite{Model: model}
	for _, t := range targets {
		r.Targets = append(r.Targets, effectiveTarget(t))
	}
	e.Rewrites = append(e.Rewrites, r)
}

// fill copies the builder's results.
func (e *effective) fill(b *builder) {
	e.Detector = b.out.DetectorName
	for _, p := range b.plugins {
		out := effectivePlugin{Name: p.name, Type: p.typ.Name}
		if data, err := json.Marshal(p.used); err == nil && string(data) != "{}" && string(data) != "null" {
			out.Parameters = data
		}
		e.Plugins = append(e.Plugins, out)
	}
}

// document is the output order of the parts.
type document struct {
	APIVersion    string                     `json:"apiVersion"`
	Kind          string                     `json:"kind"`
	FeatureGates  []string                   `json:"featureGates,omitempty"`
	Plugins       []effectivePlugin          `json:"plugins"`
	Profiles      []effectiveProfile         `json:"schedulingProfiles"`
	FlowControl   *ordered                   `json:"flowControl,omitempty"`
	DataLayer     map[string]json.RawMessage `json:"dataLayer,omitempty"`
	Handler       map[string]bool            `json:"requestHandler,omitempty"`
	Objectives    []effectiveObjective       `json:"objectives,omitempty"`
	ModelRewrites []effectiveRewrite         `json:"modelRewrites,omitempty"`
	Trust         *effectiveTrust            `json:"trust,omitempty"`
}

// ordered is the flowControl object: the detector, then the file's settings.
type ordered struct {
	detector string
	rest     strict.Node
}

// MarshalJSON implements json.Marshaler.
func (o *ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	name, err := json.Marshal(o.detector)
	if err != nil {
		return nil, err
	}
	b.WriteString(`{"saturationDetector":{"pluginRef":`)
	b.Write(name)
	b.WriteByte('}')
	for _, e := range o.rest.Object().Entries() {
		if e.Name == "saturationDetector" {
			continue
		}
		value, err := e.Value.JSON()
		if err != nil {
			return nil, err
		}
		key, err := json.Marshal(e.Name)
		if err != nil {
			return nil, err
		}
		b.WriteByte(',')
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Effective returns the configuration as YAML with all defaults: added plugins, every parameter,
// every weight. It loads to a Config with the same Effective.
func (c *Config) Effective() ([]byte, error) {
	e := &c.effective
	doc := document{
		APIVersion: e.APIVersion, Kind: e.Kind, FeatureGates: e.FeatureGates, Plugins: e.Plugins, Profiles: e.Profiles,
		FlowControl: &ordered{e.Detector, e.FlowControl}, Objectives: e.Objectives, ModelRewrites: e.Rewrites, Trust: e.Trust,
	}
	if e.Discovery != "" {
		ref, err := json.Marshal(effectiveRef{PluginRef: e.Discovery})
		if err != nil {
			return nil, err
		}
		doc.DataLayer = map[string]json.RawMessage{"discovery": ref}
	}
	if e.Propagates {
		doc.Handler = map[string]bool{"propagatePriority": true}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil {
		return nil, err
	}
	unflow(&node)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unflow converts JSON's flow style to YAML's block style and removes unneeded quotes.
func unflow(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		unflow(c)
	}
}

// Hash identifies the effective configuration: it is equal for equivalent files.
func (c *Config) Hash() string {
	data, err := c.Effective()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
