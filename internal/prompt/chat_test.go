package prompt

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestChatsAgainstReference renders random chats with the models' own templates here and in Python,
// and compares the token ids.
func TestChatsAgainstReference(t *testing.T) {
	ref := newReference(t)
	for _, name := range realModels {
		m, dir := realModel(t, name)
		g := newGen(1)
		bad, refused := 0, 0
		for range 300 {
			body := g.chat()
			raw, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			var want answer
			ref.Ask(object{"dir": dir, "parts": false, "body": body}, &want)
			got, info, err := m.Render(t.Context(), []byte("kept"), raw, KindChat)
			if want.Error != "" {
				refused++
				if err == nil {
					t.Errorf("%s: %s\nrendered %q, the reference says %s", name, raw, got, want.Error)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %s\n%v", name, raw, err)
				continue
			}
			ids := m.EncodeRendered(nil, got[4:])
			if string(got[:4]) != "kept" || info.Truncated || !slices.Equal(ids, want.IDs) {
				if bad++; bad <= 3 {
					t.Errorf("%s: %s\n got %q\nwant %q", name, raw, got[4:], want.Out)
				}
			}
		}
		t.Logf("%s: %d refused by both, %d differ", name, refused, bad)
		if refused > 75 {
			t.Errorf("%s: %d of 300 chats refused", name, refused)
		}
	}
}
