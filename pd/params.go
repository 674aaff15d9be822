package pd

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// disaggParams are the parameters of all versions of the prefill/decode profile handlers. Values of
// older fields are moved to the newer ones.
type disaggParams struct {
	Profiles struct {
		Decode  string `json:"decode"`
		Prefill string `json:"prefill"`
		Encode  string `json:"encode"`
	} `json:"profiles"`
	Deciders struct {
		Prefill string `json:"prefill,omitempty"`
		Encode  string `json:"encode,omitempty"`
	} `json:"deciders,omitzero"`
	Threshold   *int `json:"threshold,omitempty"` // minimum missing tokens for a split; 0: always
	PrimaryPort int  `json:"primaryPort,omitempty"`
	// StageOrder is decode-first, in several spellings.
	StageOrder string `json:"stageOrder,omitempty"`
	// WithoutPrefill is the handling of requests to be split without an available prefill endpoint:
	// decode-only (default) or fail.
	WithoutPrefill string `json:"withoutPrefill,omitempty"`

	DecodeProfile            string `json:"decodeProfile,omitempty"`
	PrefillProfile           string `json:"prefillProfile,omitempty"`
	EncodeProfile            string `json:"encodeProfile,omitempty"`
	DeciderPluginName        string `json:"deciderPluginName,omitempty"`
	PrefillDeciderPluginName string `json:"prefillDeciderPluginName,omitempty"`
	EncodeDeciderPluginName  string `json:"encodeDeciderPluginName,omitempty"`

	HashBlockSize               int    `json:"hashBlockSize,omitempty"` // unused: the index has its own
	PrefixPluginName            string `json:"prefixPluginName,omitempty"`
	PrefixPluginType            string `json:"prefixPluginType,omitempty"`
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName,omitempty"`
}

// Values of withoutPrefill.
const (
	decodeOnly  = "decode-only"
	failRequest = "fail"
)

// decodeFirst reports whether an order of stages begins with decode, including no order.
func decodeFirst(order string) bool {
	switch strings.ReplaceAll(strings.ToLower(order), "_", "-") {
	case "", "decode", "decode-first":
		return true
	}
	return false
}

// newer moves the value of an older field to the newer one.
func newer(field, oldField string, value, old *string) error {
	if *old != "" && *value != "" && *old != *value {
		return &plugin.ParamError{Field: oldField, Message: "says something else than " + field}
	}
	*value = cmp.Or(*value, *old)
	*old = ""
	return nil
}

// upgrade moves older fields to the newer ones and fills in names. uses are the deciders named by
// the file.
func (p *disaggParams) upgrade() (uses []plugin.Use, err error) {
	prefill, encode := p.prefillField(), "deciders.encode"
	if p.EncodeDeciderPluginName != "" {
		encode = "encodeDeciderPluginName"
	}
	err = plugin.Faults(
		newer("profiles.decode", "decodeProfile", &p.Profiles.Decode, &p.DecodeProfile),
		newer("profiles.prefill", "prefillProfile", &p.Profiles.Prefill, &p.PrefillProfile),
		newer("profiles.encode", "encodeProfile", &p.Profiles.Encode, &p.EncodeProfile),
		newer("deciders.prefill", "prefillDeciderPluginName", &p.Deciders.Prefill, &p.PrefillDeciderPluginName),
		newer("deciders.prefill", "deciderPluginName", &p.Deciders.Prefill, &p.DeciderPluginName),
		newer("deciders.encode", "encodeDeciderPluginName", &p.Deciders.Encode, &p.EncodeDeciderPluginName),
		plugin.Require(p.Threshold == nil || *p.Threshold >= 0, "threshold", "must not be negative"),
		plugin.Require(p.WithoutPrefill == "" || p.WithoutPrefill == decodeOnly || p.WithoutPrefill == failRequest, "withoutPrefill", "must be decode-only or fail"),
		plugin.Foreign(!decodeFirst(p.StageOrder), "stageOrder", plugin.Replacement{
			Use: "use decode-first: prefill endpoints are chosen for a decode endpoint", Lost: "the choice of the prefill endpoint first",
		}),
		plugin.Require(p.PrimaryPort >= 0 && p.PrimaryPort < 1<<16, "primaryPort", "must be a port number"))
	p.Profiles.Decode = cmp.Or(p.Profiles.Decode, "decode")
	p.Profiles.Prefill = cmp.Or(p.Profiles.Prefill, "prefill")
	p.Profiles.Encode = cmp.Or(p.Profiles.Encode, "encode")
	p.HashBlockSize, p.PrefixPluginName, p.PrefixPluginType, p.PrefixMatchInfoProducerName = 0, "", "", ""
	if p.Deciders.Prefill != "" {
		uses, p.Threshold = append(uses, plugin.Use{Field: prefill, Name: p.Deciders.Prefill, Kind: plugin.KindDecider}), nil
	}
	if p.Deciders.Encode != "" {
		uses = append(uses, plugin.Use{Field: encode, Name: p.Deciders.Encode, Kind: plugin.KindDecider})
	}
	return uses, err
}

// prefillField returns the name of the field with the prefill decider.
func (p *disaggParams) prefillField() string {
	switch {
	case p.Deciders.Prefill != "":
		return "deciders.prefill"
	case p.PrefillDeciderPluginName != "":
		return "prefillDeciderPluginName"
	default:
		return "deciderPluginName"
	}
}

// disagg returns the factory of a prefill/decode profile handler. Without a decider, requests are
// split from a threshold of missing tokens, or by cost if threshold is nil and there is a prefill
// profile.
func disagg(threshold *int) func(*plugin.Params) (plugin.Plugin, error) {
	return func(params *plugin.Params) (plugin.Plugin, error) {
		p := &disaggParams{}
		unread := params.Read(p)
		if p.Threshold == nil && threshold != nil {
			p.Threshold = new(*threshold)
		}
		uses, err := p.upgrade()
		return plugin.Plugin{Uses: uses, Handler: p.handler}, errors.Join(unread, err)
	}
}

// handler creates the handler with its profiles and deciders.
func (p *disaggParams) handler(profiles []*cycle.Profile, deciders []plugin.Decider) (cycle.ProfileHandler, error) {
	o := Options{PrimaryPort: uint16(p.PrimaryPort), NeedPrefill: p.WithoutPrefill == failRequest}
	switch {
	case p.Threshold != nil:
		o.SplitPrefill = Missing(*p.Threshold, 0)
	case named(profiles, p.Profiles.Prefill) != nil:
		o.SplitPrefill = ByPrice()
	}
	if p.Deciders.Prefill != "" {
		o.SplitPrefill, deciders = deciders[0], deciders[1:]
	}
	if p.Deciders.Encode != "" {
		o.SplitEncode = deciders[0]
	}
	for _, need := range []struct {
		name string
		into **cycle.Profile
		used bool
	}{
		{p.Profiles.Decode, &o.Decode, true},
		{p.Profiles.Prefill, &o.Prefill, o.SplitPrefill.Split != nil},
		{p.Profiles.Encode, &o.Encode, o.SplitEncode.Split != nil},
	} {
		if *need.into = named(profiles, need.name); *need.into == nil && need.used {
			return nil, fmt.Errorf("needs a scheduling profile named %q", need.name)
		}
	}
	return New(o)
}

// named returns the profile with a name, or nil.
func named(profiles []*cycle.Profile, name string) *cycle.Profile {
	for _, p := range profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// ByPrice returns the predicted-pd-decider with default parameters.
func ByPrice() plugin.Decider {
	p := predictedDefaults()
	model, _ := p.Model() // the defaults are valid
	return (&prices{p, model}).decider()
}
