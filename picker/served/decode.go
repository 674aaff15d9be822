package served

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Limits of one engine's list.
const (
	maxPage   = 4 << 20 // bytes
	maxModels = 8192
	maxName   = 512 // bytes; longer or unprintable names are omitted
	maxLength = 1 << 40
)

var errNoList = errors.New("served: the answer is not a list of models")

// page is the relevant part of a response to GET /v1/models.
type page struct {
	Object string `json:"object"`
	Data   cards  `json:"data"`
}

// cards are the models of a page, up to one more than the limit. Decoded elements of two bytes take
// seventy times as much.
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
	Root    *string `json:"root"`
	Parent  *string `json:"parent"`
	Length  any     `json:"max_model_len"`
}

// Decode decodes an engine's response to GET /v1/models. kind is the engine's type if known.
// Engines that report vLLM as a model's owner reject every unlisted name; others may not.
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
		if c.Root != nil && len(*c.Root) <= maxName && budget.Shows(*c.Root) {
			m.Root = *c.Root
		}
		if n, number := c.Length.(float64); number && n >= 1 && n <= maxLength {
			m.Length = int(n)
		}
		list.Models = append(list.Models, m)
	}
	if len(list.Models) == 0 { // an engine without models is not ready
		return endpoint.ModelList{}, errNoList
	}
	if len(p.Data) > maxModels {
		list.Rejects = false // omitted names are served too
	}
	return list, nil
}
