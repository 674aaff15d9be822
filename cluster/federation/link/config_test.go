package link

import (
	"crypto/cipher"
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/internal/window"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

const goodConfig = `
cluster: paris
region: eu
secretFile: federation.key
listen: 0.0.0.0:7950
certFile: tls.crt
keyFile: tls.key
caFile: /etc/ca.crt
lease: 5s
exports:
- pool: default/llama
  gateways: [{address: "gw.paris.example:443", sni: gw.paris.example, host: llm.example}]
  egress: internet
peers:
- name: tokyo
  addresses: ["federation.tokyo.example:7950"]
  export: ["default/*"]
  accept: ["default/llama"]
  rate: 262144
`

// TestConfig: a file is parsed completely, and its paths are relative to it.
func TestConfig(t *testing.T) {
	c, err := ParseConfig("f.yaml", []byte(goodConfig))
	if err != nil {
		t.Fatal(err)
	}
	c.resolve("/etc/grapevine")
	if c.Cluster != "paris" || c.Lease != 5*time.Second || c.SecretFile != "/etc/grapevine/federation.key" || c.CAFile != "/etc/ca.crt" ||
		c.Peers[0].Rate != 262144 || c.Peers[0].Accept[0] != "default/llama" {
		t.Errorf("%+v", c)
	}
	if x := c.Export(&c.Exports[0]); x.Pool.Name != "llama" || x.Gateways[0].Host != "llm.example" || x.Region != "eu" || x.Price.Egress != "internet" {
		t.Errorf("%+v", x)
	}
}

// TestBadConfig: errors contain the position or the field.
func TestBadConfig(t *testing.T) {
	for _, tc := range [][3]string{
		{"cluster: paris", "cluster: pa.ris", "not a valid name"},
		{"listen:", "lisen:", "lisen"},
		{"certFile: tls.crt\n", "", "certFile"},
		{"lease: 5s", "lease: 5ms", "lease"},
		{"pool: default/llama", "pool: llama", "namespace/name"},
		{"name: tokyo", "name: paris", "this cluster's"},
		{`export: ["default/*"]`, `export: ["["]`, "pattern"},
		{`export: ["default/*"]`, `export: ["*"]`, "pattern"},
		{"rate: 262144", "rate: 100", "rate"},
		{"listen: 0.0.0.0:7950\n", "nats: {urls: [\"nats://x\"]}\n", "keyFile is required"},
		{"listen: 0.0.0.0:7950\n", "listen: 0.0.0.0:7950\nnats: {urls: [\"nats://x\"]}\n", "cannot be used together"},
		{"listen: 0.0.0.0:7950\n", "nats: {}\n", "nats.urls"},
		{"region: eu", "blocks: 99999999999", "blocks"},
		{"region: eu", "use: {requests: some}", "use"},
		{"region: eu", "use: {mode: both}", "use"},
		{"region: eu", "use: {egress: {internet: -1}}", "egress"},
		{"region: eu", "use: {allow: [pariss]}", "not a cluster in this file"},
		{"region: eu", "use: {allow: [\" paris\"]}", "not a cluster in this file"},
		{"region: eu", "use: {allow: [Tokyo]}", "not a cluster in this file"},
		{"region: eu", "use: {allow: [\"region: eu\"]}", "region:NAME"},
		{"region: eu", "use: {allow: [\"region:\"]}", "region:NAME"},
		{"region: eu", "use: {objectives: {batch: []}}", "use * for all"},
		{"region: eu", "use: {objectives: {batch: [osaka]}}", "not a cluster in this file"},
		{"pool: default/llama", "pool: default/" + strings.Repeat("x", 254), "namespace/name"},
	} {
		text := strings.Replace(goodConfig, tc[0], tc[1], 1)
		if text == goodConfig {
			t.Fatalf("%q is not in the file", tc[0])
		}
		if _, err := ParseConfig("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), tc[2]) {
			t.Errorf("%q: %v", tc[1], err)
		}
	}
}

// TestRules: entries that match a cluster are accepted, and regions are read from the file.
func TestRules(t *testing.T) {
	text := strings.Replace(goodConfig, "region: eu", "use: {allow: [paris, tokyo, \"region:eu\"], objectives: {batch: [\"*\"]}}", 1) + "  region: jp\n"
	c, err := ParseConfig("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseConfig("f.yaml", []byte("cluster: paris\nuse: {allow: [tokyo]}\n")); err != nil {
		t.Errorf("config without peers: %v", err)
	}
	if r := c.Regions(); len(r) != 1 || r["tokyo"] != "jp" {
		t.Errorf("%v", r)
	}
}

// FuzzParseConfig: any input is parsed or rejected.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(goodConfig))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		if c, err := ParseConfig("f.yaml", b); err == nil && (c == nil || !validName(c.Cluster)) {
			t.Error("accepted a config without a cluster name")
		}
	})
}

// FuzzParsePool: a parsed pool formats to the input.
func FuzzParsePool(f *testing.F) {
	f.Add("a/b")
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, s string) {
		if k, err := ParsePool(s); err == nil && k.String() != s {
			t.Errorf("%q became %q", s, k)
		}
	})
}

// TestEnvelopeOrder: messages may overtake each other and are accepted once.
func TestEnvelopeOrder(t *testing.T) {
	key := make([]byte, 32)
	seal, err := sealer(key, "a", "b", "a-0", 1)
	if err != nil {
		t.Fatal(err)
	}
	from := &natsLink{l: &Link{o: Options{Config: &Config{Cluster: "a"}, Replica: "a-0"}}, self: "a-0", boot: 1}
	n := &natsLink{
		l:     &Link{o: Options{Config: &Config{Cluster: "b"}, Replica: "b-0"}},
		pairs: map[string]*pair{"a": {key: key, senders: newSenders()}},
	}
	derived := 0
	n.derive = func(key []byte, from, to, replica string, boot uint64) (cipher.AEAD, error) {
		if derived++; n.mu.TryLock() {
			n.mu.Unlock()
		} else {
			t.Error("keys are derived under the lock: unknown senders delay known ones")
		}
		return sealer(key, from, to, replica, boot)
	}
	var sent [window.Size + 3]envelope
	for i := range sent {
		b := from.sealed(&pair{seal: seal}, federation.Send{Cluster: "b", To: anyReplica, Frame: []byte("x")}, "b.any")
		if sent[i], err = parseEnvelope(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		i    int
		want string
	}{{2, ""}, {0, ""}, {2, "repeated"}, {1, ""}, {0, "repeated"}, {window.Size + 2, ""}, {2, "replay"}, {4, ""}} {
		if _, got := n.opened(&sent[step.i], "b.any"); got != step.want {
			t.Errorf("message %d: %q, want %q", step.i, got, step.want)
		}
	}
	if derived != 1 {
		t.Errorf("the key of one sender was derived %d times", derived)
	}
}

// FuzzEnvelope: any NATS message is rejected or decoded. Content that the pair did not seal is
// never used.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte{sealVersion, 1, 1, 'a', 1, 'r', 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9})
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	l := &Link{o: Options{Config: &Config{Cluster: "b"}, Replica: "b-0"}}
	n := &natsLink{l: l, derive: sealer, pairs: map[string]*pair{"a": {key: key, senders: newSenders()}}}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		e, err := parseEnvelope(b)
		if err != nil {
			return
		}
		if frame, reason := n.opened(&e, "s"); reason == "" {
			t.Errorf("opened: %x", frame)
		}
	})
}

// FuzzFrame: a frame never exceeds the largest message, for any length field.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 7})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 7})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		if frame, err := readFrame(strings.NewReader(string(b))); err == nil && len(frame) > len(b) {
			t.Error("read more bytes than the input has")
		}
	})
}

// TestFileOfFolder: a missing file is an error.
func TestFileOfFolder(t *testing.T) {
	if _, err := ReadConfig(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("reading a missing file succeeded")
	}
}

// TestNoSecretsFile: a federation without a file of secrets has none, which is not an error.
func TestNoSecretsFile(t *testing.T) {
	if use, also, text, err := readSecrets(""); use != nil || also != nil || text != "" || err != nil {
		t.Errorf("readSecrets(\"\") = %v, %v, %q, %v, want none", use, also, text, err)
	}
	if _, _, _, err := readSecrets(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("readSecrets() of a missing file returned no error")
	}
}
