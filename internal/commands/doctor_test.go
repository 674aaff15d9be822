package commands

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// closedPort returns an address of this host that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// doctorSays runs doctor and returns its findings and its exit code.
func doctorSays(t *testing.T, args ...string) (found []finding, code int) {
	t.Helper()
	var out bytes.Buffer
	cmd := newDoctor(standard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetArgs(append(args, "-o", "json"))
	err := cmd.ExecuteContext(t.Context())
	var exit cli.ExitCode
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return found, int(exit)
}

func has(found []finding, code problems.Code, detail string) bool {
	return slices.ContainsFunc(found, func(f finding) bool {
		return f.Code == code && strings.Contains(f.Check+": "+f.Detail, detail)
	})
}

// TestDoctorOfAReplica: engines, event streams and members of a running replica that cannot be
// reached are found, as are other versions, another clock and the replica's own problems.
func TestDoctorOfAReplica(t *testing.T) {
	engine := httptest.NewServer(http.NotFoundHandler())
	defer engine.Close()
	up, down := strings.TrimPrefix(engine.URL, "http://"), closedPort(t)
	var l problems.List
	l.Add(problems.Mismatched, up, "another template")
	st := server.Status{Name: "a", Version: "9.9", State: "ready", Problems: l.Found()}
	st.Endpoints = []server.EndpointStatus{
		{Address: up, Streams: []server.StreamStatus{{Events: "tcp://" + up}, {Events: "tcp://" + down}}}, {Address: down},
	}
	st.Members = []server.MemberStatus{{Name: "a", State: "self"}, {Name: "b", State: "up", Addr: up, Version: "9.9"}, {Name: "c", State: "down", Addr: down, Version: "9.8"}}
	skew := time.Duration(0)
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
		if err := cli.WriteJSON(w, st); err != nil {
			t.Error(err)
		}
	}))
	defer admin.Close()
	found, code := doctorSays(t, "--admin", strings.TrimPrefix(admin.URL, "http://"))
	for code, detail := range map[problems.Code]string{
		problems.Mismatched: "another template", problems.EngineUnreachable: "engine " + down, problems.StreamUnreachable: "events of " + up,
		problems.PeerUnreachable: "replica c", problems.Versions: "9.8: c; 9.9: a, b; ",
	} {
		if !has(found, code, detail) {
			t.Errorf("no finding %s about %q in %+v", code, detail, found)
		}
	}
	for _, check := range []string{"engine " + up + ": answers 404", "replica b: ", "clock: "} {
		if !has(found, "", check) {
			t.Errorf("%q did not pass in %+v", check, found)
		}
	}
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, skew = range []time.Duration{-time.Minute, time.Minute} {
		if found, _ := doctorSays(t, "--admin", strings.TrimPrefix(admin.URL, "http://")); !has(found, problems.ClockSkew, "differ by ") {
			t.Errorf("a clock that is %s ahead is not found: %+v", skew, found)
		}
	}
	if found, code := doctorSays(t, "--admin", down); code != 1 || !has(found, problems.NoReplica, down) {
		t.Errorf("exit code %d without a replica, findings %+v", code, found)
	}
}

// certificateUntil writes a self-signed certificate and its key.
func certificateUntil(t *testing.T, dir string, from, until time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}, &x509.Certificate{}, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestDoctorOfAHost: names, ports, certificates and Envoy configurations that cannot work are found,
// and those that can are not.
func TestDoctorOfAHost(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	_, closed, _ := net.SplitHostPort(closedPort(t))
	cert, key := certificateUntil(t, dir, now.Add(-time.Hour), now.Add(30*24*time.Hour))
	old := filepath.Join(dir, "old")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	oldCert, oldKey := certificateUntil(t, old, now.Add(-time.Hour), now.Add(time.Hour))
	endpoints := filepath.Join(dir, "endpoints.yaml")
	if err := os.WriteFile(endpoints, []byte("endpoints:\n- {name: a, address: 127.0.0.1, port: "+closed+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	envoy := func(port string) string {
		path := filepath.Join(dir, "envoy-"+port+".yaml")
		text := fmt.Sprintf(`static_resources:
  listeners:
  - filter_chains:
    - filters:
      - typed_config:
          http_filters:
          - typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: { envoy_grpc: { cluster_name: picker } }
  clusters:
  - name: picker
    load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: %s } } } }] }] }
`, port)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const none = "--listen=127.0.0.1:0"
	for _, c := range []struct {
		code   problems.Code
		detail string
		args   []string
	}{
		{problems.PortInUse, port, []string{"--listen", lis.Addr().String()}},
		{"", "port: 127.0.0.1:0 is free", []string{none}},
		{problems.Unresolved, "no-such-host.invalid", []string{none, "--host", "no-such-host.invalid"}},
		{problems.EngineUnreachable, closed, []string{none, "--endpoints", endpoints}},
		{problems.StaleList, "no such file", []string{none, "--endpoints", filepath.Join(dir, "nowhere.yaml")}},
		{"", "certificate: is valid until", []string{none, "--tls-cert", cert, "--tls-key", key}},
		{problems.BadCertificate, "expires at", []string{none, "--tls-cert", oldCert, "--tls-key", oldKey}},
		{problems.BadCertificate, "private key", []string{none, "--tls-cert", cert, "--tls-key", oldKey}},
		{"", "its picker 127.0.0.1:" + port, []string{none, "--envoy", envoy(port)}},
		{problems.EnvoyConfig, "its picker 127.0.0.1:" + closed, []string{none, "--envoy", envoy(closed)}},
		{problems.EnvoyConfig, "no ext_proc filter", []string{none, "--envoy", endpoints}},
	} {
		found, exit := doctorSays(t, c.args...)
		if !has(found, c.code, c.detail) || c.code != "" && exit != 1 {
			t.Errorf("%v: no finding %s about %q in %+v, exit code %d", c.args, c.code, c.detail, found, exit)
		}
	}
}

// TestDoctorHasEveryCode: doctor's source uses each code that the table assigns to it.
func TestDoctorHasEveryCode(t *testing.T) {
	names, err := os.ReadFile("../problems/codes.go")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("doctor.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems.Table {
		if p.Source != problems.Doctor {
			continue
		}
		name := ""
		for _, line := range strings.Split(string(names), "\n") {
			if strings.Contains(line, `"`+string(p.Code)+`"`) {
				name = strings.Fields(line)[0]
			}
		}
		if !strings.Contains(string(source), "problems."+name+",") {
			t.Errorf("doctor never finds %s (%s)", p.Code, name)
		}
	}
}

// TestFileLimit: the check of open files reports the limit of this process.
func TestFileLimit(t *testing.T) {
	d := new(doctor)
	d.fileLimit()
	if len(d.found) != 1 || !strings.Contains(d.found[0].Detail, "the limit is ") {
		t.Errorf("%+v", d.found)
	}
	d.resolve(context.Background(), "127.0.0.1")
	if len(d.found) != 1 {
		t.Errorf("an address was resolved: %+v", d.found)
	}
}
