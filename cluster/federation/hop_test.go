package federation

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func hopsOf(t testing.TB, self, secret string) *Hops {
	t.Helper()
	s, err := filter.NewSecret([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return NewHops(s, self)
}

const hopSecret = "a secret of the federation"

func TestHop(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, b := hopsOf(t, "a", hopSecret), hopsOf(t, "b", hopSecret)
	token := a.Sign("b", 1, now)
	hop, err := b.Verify(token, now.Add(time.Second))
	if err != nil || hop.From != "a" || hop.To != "b" || hop.Count != 1 || !hop.Until.Equal(now.Add(HopLife)) {
		t.Fatalf("%+v, %v", hop, err)
	}
	for name, verify := range map[string]func() (Hop, error){
		"another secret":     func() (Hop, error) { return hopsOf(t, "b", "another secret, as long").Verify(token, now) },
		"another cluster":    func() (Hop, error) { return hopsOf(t, "c", hopSecret).Verify(token, now) },
		"too old":            func() (Hop, error) { return b.Verify(token, now.Add(HopLife+HopSkew+time.Second)) },
		"of the future":      func() (Hop, error) { return b.Verify(token, now.Add(-HopSkew-time.Second)) },
		"a changed count":    func() (Hop, error) { return b.Verify(strings.Replace(token, ";1;", ";2;", 1), now) },
		"a changed sender":   func() (Hop, error) { return b.Verify(strings.Replace(token, ";a;", ";c;", 1), now) },
		"cut off":            func() (Hop, error) { return b.Verify(token[:len(token)-1], now) },
		"too many clusters":  func() (Hop, error) { return b.Verify(a.Sign("b", MaxHops+1, now), now) },
		"none at all":        func() (Hop, error) { return b.Verify(a.Sign("b", 0, now), now) },
		"a name with a mark": func() (Hop, error) { return b.Verify(hopsOf(t, "a;b", hopSecret).Sign("b", 1, now), now) },
		"nothing":            func() (Hop, error) { return b.Verify("", now) },
	} {
		if hop, err := verify(); !errors.Is(err, ErrHop) {
			t.Errorf("%s: %+v, %v, want ErrHop", name, hop, err)
		}
	}
}

func FuzzHop(f *testing.F) {
	now := time.Unix(1e9, 0)
	b := hopsOf(f, "b", hopSecret)
	f.Add(hopsOf(f, "a", hopSecret).Sign("b", 1, now))
	f.Add("1;a;b;1;1;")
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, token string) {
		hop, err := b.Verify(token, now)
		if err == nil && (hop.To != "b" || hop.Count < 1 || hop.Count > MaxHops) {
			t.Errorf("%q: %+v", token, hop)
		}
	})
}
