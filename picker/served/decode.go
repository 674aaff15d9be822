package served

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Bounds of one engine's list.
const (
	maxPage   = 4 << 20 // bytes
	maxModels = 8192
	maxName   = 512 // bytes; a longer name is left out, as is one that does not show
)

var errNoList = errors.New("served: the answer is not a list of models")

// page is the answer to GET /v1/models, as far as it is read.
type page struct {
	Object string `json:"object"`
	Data   cards  `json:"data"`
}

// cards are the models of a page, one more than the bound at most: an element of two
// bytes takes seventy times as many.
type cards []card

// UnmarshalJSON implements json.Unmarshaler.
func (c *cards) UnmarshalJSON(text []byte) error {
	if *c = nil; string(text) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errNoList
	}
	for *c = (cards{}); d.More() && len(*c) <= maxModels; {
		var one card
		if err := d.Decode(&one); err != nil {
			return err
		}
		*c = append(*c, one)
	}
	return nil
}

type card struct {
	ID      string  `json:"id"`
	OwnedBy string  `json:"owned_by"`
	Parent  *string `json:"parent"`
}

// Decode reads the answer of an engine to GET /v1/models. kind is the engine's
// type as far as it is known; engines that name vLLM as the owner of a model are
// known to refuse every name that is not listed, and others are not.
func Decode(data []byte, kind endpoint.EngineType) (endpoint.ModelList, error) {
	var p page
	if err := json.Unmarshal(data, &p); err != nil || p.Data == nil {
		return endpoint.ModelList{}, errNoList
	}
	list := endpoint.ModelList{Rejects: kind == endpoint.EngineVLLM}
	for _, c := range p.Data[:min(len(p.Data), maxModels)] {
		if c.ID == "" || len(c.ID) > maxName || !budget.Shows(c.ID) {
			continue
		}
		if kind == endpoint.EngineUnknown && c.OwnedBy == "vllm" {
			list.Rejects = true
		}
		m := endpoint.Model{Name: c.ID}
		if c.Parent != nil && *c.Parent != c.ID && len(*c.Parent) <= maxName && budget.Shows(*c.Parent) {
			m.Parent = *c.Parent
		}
		list.Models = append(list.Models, m)
	}
	if len(list.Models) == 0 { // an engine that serves nothing is not ready
		return endpoint.ModelList{}, errNoList
	}
	if len(p.Data) > maxModels {
		list.Rejects = false // names that were left out are served
	}
	return list, nil
}
