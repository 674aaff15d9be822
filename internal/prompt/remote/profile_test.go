package remote

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestCompareByProfile checks that an engine's rendering is compared with its profile's. If a fact
// of the profile is unknown, no comparison is made.
func TestCompareByProfile(t *testing.T) {
	models := loadModels(t, "m", writeModel(t, "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}"))
	m, _, _ := models.Lookup("m")
	newest, older := prompt.ProfileOf("sglang", "0.5.23"), prompt.ProfileOf("sglang", "0.5.9")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text, _, err := m.RenderAs(context.Background(), nil, body, prompt.KindChat, newest)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		ids := []int{}
		for _, c := range text {
			ids = append(ids, int(c))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"token_ids": ids})
	}))
	defer s.Close()
	for _, c := range []struct {
		as       prompt.Profile
		equal    bool
		complete bool
	}{{newest, true, true}, {0, false, true}, {older, false, false}} {
		f, err := Compare(t.Context(), &Engine{URL: s.URL, Kind: endpoint.EngineSGLang, As: c.as, Client: NewClient()}, m, "m", Chats[2])
		if err != nil || f.Equal != c.equal || f.Complete() != c.complete {
			t.Errorf("profile %x: %s, %v; want equal %v, complete %v", uint32(c.as), f.String(), err, c.equal, c.complete)
		}
	}
}
