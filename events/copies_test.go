package events

import (
	"context"
	"log/slog"
	"reflect"
	"testing"

	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// TestSubscriberHasEverySetting: everything known of an endpoint and its model reaches the reader of its
// stream and the translator of its events.
func TestSubscriberHasEverySetting(t *testing.T) {
	var e EndpointSource
	fields.Fill(&e, "Model.Unit")
	e.Model.Vocabulary, e.Model.Unit = nil, 8
	at := e.Streams[0]
	h := block.NewHasher(block.Seed{1})
	m := &Manager{ctx: context.Background(), opt: Options{Hasher: h, SharedRemote: true, Log: slog.New(slog.DiscardHandler)}}
	m.opt.Index = indexer.New(indexer.Options{Hasher: h})
	s := newSubscriber(m, &e, at)
	defer s.cancel()
	if s.name != e.Name || s.pod != e.Pod || s.model != e.Model || s.src != (block.Source{Endpoint: e.ID, Rank: at.Rank}) || s.at != at {
		t.Errorf("subscriber %s, pod %s, source %v, want those of %+v", s.name, s.pod, s.src, e)
	}
	found := false
	fields.Walk(s.tr, func(r reflect.Value) {
		if r.Type() != reflect.TypeFor[translate.Options]() {
			return
		}
		found = true
		for i := range r.NumField() {
			switch name := r.Type().Field(i).Name; name {
			case "Vocabulary", "Canonical", "ParkBlocks", "ParkBytes": // none here, and the defaults
			default:
				if r.Field(i).IsZero() {
					t.Errorf("the translator has no %s", name)
				}
			}
		}
	})
	if !found {
		t.Error("the translator has no options")
	}
}
