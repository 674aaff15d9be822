package server

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
)

// TestHealthRecorder: leaving the state ready, or running late, requests a record. Starting,
// draining, and staying degraded do not.
func TestHealthRecorder(t *testing.T) {
	for _, c := range []struct {
		name   string
		states []string // "late" is ready with late timers
		want   string   // detail of the record
	}{
		{"start", []string{"starting", "degraded", "ready"}, ""},
		{"drain", []string{"ready", "draining"}, ""},
		{"degraded", []string{"ready", "degraded"}, "ready, then degraded: a reason"},
		{"late", []string{"ready", "late"}, "ready, then timers run 90 ms late"},
		{"stays degraded", []string{"degraded", "degraded", "late"}, ""},
	} {
		r, err := flightrecorder.New(flightrecorder.Options{Trace: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var h healthRecorder
		for _, state := range c.states {
			late := ""
			if state == "late" {
				state, late = "ready", "timers run 90 ms late"
			}
			h.see(&Status{State: state, Reason: "a reason"}, late, r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if c.want != "" {
			ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
			go func() {
				defer cancel()
				for len(r.Stored()) == 0 && ctx.Err() == nil {
					time.Sleep(5 * time.Millisecond)
				}
			}()
		}
		r.Run(ctx)
		cancel()
		list := r.Stored()
		if got := len(list); got > 1 || (got == 1) != (c.want != "") || got == 1 && list[0].Detail != c.want {
			t.Errorf("%s: records %v, want %q", c.name, list, c.want)
		}
		r.Close()
	}
}

// TestSettingsHaveNoSecrets: every option with text or bytes that is not listed as shown is hidden,
// and the listed ones exist.
func TestSettingsHaveNoSecrets(t *testing.T) {
	var o Options
	fill(reflect.ValueOf(&o).Elem(), 0)
	out := map[string]any{}
	settings(reflect.ValueOf(o), "", out)
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Count(string(text), marked)
	if shown < len(shownSettings) || shown > len(shownSettings) {
		t.Errorf("%d texts are shown, want those of %d settings: %s", shown, len(shownSettings), text)
	}
	for _, secret := range []string{"Secret", "ControlToken", "PickToken"} {
		if out[secret] != "(set)" {
			t.Errorf("%s is %v", secret, out[secret])
		}
	}
}

const marked = "MARKEDTEXT"

// fill sets every text of a struct, one element in each list.
func fill(v reflect.Value, depth int) {
	switch {
	case depth > 5 || !v.CanSet():
	case v.Kind() == reflect.String:
		v.SetString(marked)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Interface && v.Type().Elem().Kind() != reflect.Func:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	}
}

// TestConfigWithoutSecrets removes texts of fields that may hold secrets, and users of URLs.
func TestConfigWithoutSecrets(t *testing.T) {
	got, err := withoutSecrets([]byte("apiToken: abc\nmaxTokens: 5\nauth: {password: [a, b]}\nurl: nats://u:p@host:4222\nname: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "apiToken: (removed)\nmaxTokens: 5\nauth: {password: [(removed), (removed)]}\nurl: nats://host:4222\nname: x\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
