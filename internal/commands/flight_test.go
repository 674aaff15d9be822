package commands

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestFlightRecordIsSafe sends requests with marked prompts and header values through a replica with
// marked secrets, and saves a flight record. The record has all files, and none has a mark.
func TestFlightRecordIsSafe(t *testing.T) {
	const mark = "MARKEDTEXT"
	key := []byte(strings.Repeat("K", 22) + mark)
	s := openSession(t)
	engineKey := filepath.Join(s.dir, "engine.key")
	if err := os.WriteFile(engineKey, []byte(mark+"-engine"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.options = func(o *server.Options) {
		o.MetricsCompat, o.MetricsPool, o.PlaceUnknown = true, "llama", true
		o.Secret, o.ControlToken, o.PickToken, o.TargetsKey, o.EngineKeyFile = mark+"-secret", mark+"-control-token", mark+"-pick", key, engineKey
		o.Control, o.PickListen, o.FlightTrace, o.SlowDecision = "127.0.0.1:0", "127.0.0.1:0", time.Second, time.Nanosecond
		o.Cluster.Keys, o.Cluster.Credentials = [][]byte{key}, ""
		o.ConfigText = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n" +
			"plugins: [{type: round-robin-fairness-policy, name: tenants}]\nflowControl: {defaultPriorityBand: {fairnessPolicyRef: tenants}}\n"
	}
	s.add()
	r := s.replicas[0]
	testkit.Await(t, "ready", func() bool { return r.Status().State == "ready" })
	for _, model := range []string{mark + "-model", vocab.Name} {
		end, _ := placeNamed(t, r.ExtProcAddr().String(), mark, model)
		defer end()
	}
	if list := screen(t, r, "explain", "--last", "10", "-o", "json"); !strings.Contains(list, mark) {
		t.Fatalf("the decisions have no marks, so that this test cannot fail: %s", list)
	}
	testkit.Await(t, "record of a slow decision", func() bool { return strings.Contains(screen(t, r, "flight-record", "--list"), "slow_decision") })
	out := filepath.Join(s.dir, "record.tar.gz")
	if text := screen(t, r, "flight-record", "-o", out); !strings.Contains(text, "bytes") {
		t.Fatal(text)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files := testkit.Unpack(t, archive)
	for _, name := range []string{"manifest.json", "goroutines.txt", "trace.out", "status.json", "group.json", "decisions.json", "metrics.txt", "config.yaml", "settings.json", "versions.json"} {
		if len(files[name]) == 0 {
			t.Errorf("%s is missing: %s", name, files["manifest.json"])
		}
	}
	forms := []string{mark, base64.StdEncoding.EncodeToString(key), hex.EncodeToString(key), hex.EncodeToString([]byte(mark))}
	for name, content := range files {
		for _, form := range forms {
			if at := strings.Index(content, form); at >= 0 {
				t.Errorf("%s has a mark: …%q", name, content[max(0, at-80):min(len(content), at+40)])
			}
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(content)) {
			t.Errorf("%s is not JSON", name)
		}
	}
	for name, want := range map[string]string{
		"decisions.json": `"request_id": "#`, "status.json": `"knowledge"`, "metrics.txt": "grapevine_picker_decisions_total 2",
		"config.yaml": "round-robin-fairness-policy", "settings.json": `"Secret": "(set)"`, "goroutines.txt": "internal/server.",
		"group.json": `"members"`, "versions.json": `"modules"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %s", name, want)
		}
	}
}

// TestFlightRecordOfHealth: a replica that stops being ready makes a record by itself. A decision
// faster than the threshold makes none.
func TestFlightRecordOfHealth(t *testing.T) {
	s := openSession(t)
	s.options = func(o *server.Options) { o.SlowDecision = time.Hour }
	s.add()
	r := s.replicas[0]
	testkit.Await(t, "ready", func() bool { return r.Status().State == "ready" })
	end, _ := placeNamed(t, r.ExtProcAddr().String(), "gold", vocab.Name)
	defer end()
	since := r.Status().UptimeS
	testkit.Await(t, "two rounds of the watch for problems", func() bool { return r.Status().UptimeS > since+4.5 })
	s.do("list", []string{"none"})
	testkit.Await(t, "record of the change", func() bool { return strings.Contains(screen(t, r, "flight-record", "--list"), " health ") })
	if list := screen(t, r, "flight-record", "--list"); strings.Contains(list, "slow_decision") {
		t.Errorf("a fast decision made a record:\n%s", list)
	}
}
