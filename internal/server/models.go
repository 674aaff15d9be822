package server

import (
	"log/slog"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker"
)

// ModelStatus is what is known of one configured model.
type ModelStatus struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

type models struct {
	hasher indexer.Hasher
	approx *indexer.Approx
	byName map[string]*events.Model
	only   *events.Model
}

func loadModels(list []ModelOptions, h indexer.Hasher, a *indexer.Approx, _ *slog.Logger) (*models, error) {
	m := &models{hasher: h, approx: a, byName: map[string]*events.Model{}, only: &events.Model{}}
	for _, o := range list {
		m.byName[o.Name] = &events.Model{Name: o.Name}
	}
	return m, nil
}

func (m *models) eventModel(names []string) *events.Model {
	for _, n := range names {
		if e := m.byName[n]; e != nil {
			return e
		}
	}
	return m.only
}

func (m *models) fill(r *picker.Request) {
	r.Chunks.Root = m.hasher.Root(indexer.Scope{Space: indexer.SpaceChunks, Model: r.Target, Adapter: r.Adapter, Salt: r.CacheSalt})
	r.ChunkKeys = m.approx.Keys(r.Chunks, r.ChunkKeys[:0])
}

func (m *models) release(*picker.Request) {}
func (m *models) status() []ModelStatus   { return []ModelStatus{} }
func (m *models) ready() bool             { return true }
func (m *models) reload() error           { return nil }
func (m *models) close()                  {}
