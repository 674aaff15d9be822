//go:build page

package page

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// incident is a fault, and the problem that an operator must see.
type incident struct {
	name string
	code problems.Code
	// start starts a calm replica and returns it with the function that causes the fault.
	start func(t *testing.T) (s *stand, cause func())
	shows string // another text of the page during the incident
}

var incidents = []incident{
	{name: "an engine dies", code: problems.Refused, start: killed},
	{name: "an engine hangs", code: problems.Hung, start: sick(faults.Faults{Hang: faults.HangFrozen})},
	{name: "an engine fails every request", code: problems.Failing, start: sick(faults.Faults{ErrorShare: 1})},
	{name: "an engine rejects every request", code: problems.Declining, start: sick(faults.Faults{ErrorShare: 1, ErrorStatus: http.StatusUnauthorized})},
	{name: "an engine sends half of its answers", code: problems.Invalid, start: sick(faults.Faults{Answer: faults.AnswerCut})},
	{name: "a configuration is wrong", code: problems.Config, start: wrongConfiguration, shows: "the file as it is"},
	{name: "one tenant floods the pool", code: problems.Saturated, start: flood, shows: "Who waits"},
	{name: "the endpoint list is damaged", code: problems.StaleList, start: damagedList},
	{name: "a certificate expires", code: problems.Certificate, start: oldCertificate},
}

// TestIncidents causes one incident after the other. The page names each by its code, with the effect
// and the action of the runbook, and /metrics has the series that the alert of the code reads.
func TestIncidents(t *testing.T) {
	runbook, err := os.ReadFile("../../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range incidents {
		t.Run(in.name, func(t *testing.T) {
			p, ok := problems.Lookup(string(in.code))
			if !ok || !strings.Contains(string(runbook), "### "+string(in.code)+"\n") {
				t.Fatalf("the runbook has no section %s", in.code)
			}
			s, cause := in.start(t)
			if got := s.eval(t, `document.querySelector("#out section").textContent`); strings.Contains(got, string(in.code)) {
				t.Fatalf("before the incident the page shows %q", got)
			}
			began := time.Now()
			cause()
			s.await(t, firstHeading, string(in.code))
			t.Logf("%s: on the page after %s", in.code, time.Since(began).Round(100*time.Millisecond))
			got := s.eval(t, firstHeading)
			for _, want := range []string{p.Title, "Effect: " + plain(p.Effect), plain(p.PlainActions()[0])} {
				if !strings.Contains(got, want) {
					t.Errorf("the page shows %q, want %q in it", got, want)
				}
			}
			if in.shows != "" {
				s.await(t, `document.getElementById("out").textContent`, in.shows)
			}
			testkit.Eventually(t, func() string {
				if n := s.metric(t, "grapevine_problems", `code="`+string(in.code)+`"`); n != "" && n != "0" {
					return ""
				}
				return "/metrics has no problem " + string(in.code)
			})
			if p.Alert == nil {
				t.Errorf("%s has no alert", in.code)
			}
		})
	}
}

// plain removes marks of code, as the page does.
func plain(text string) string { return strings.ReplaceAll(text, "`", "") }

// metric returns the value of the first series of a metric that contains a label.
func (s *stand) metric(t *testing.T, name, label string) string {
	t.Helper()
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, name+"{") && strings.Contains(line, label) {
			return line[strings.LastIndexByte(line, ' ')+1:]
		}
	}
	return ""
}

// killed has one of four engines die.
func killed(t *testing.T) (*stand, func()) {
	s, _ := sick(faults.Faults{})(t)
	return s, func() { _ = s.engines.Engines()[0].Close() }
}

// sick returns the start of an incident in which one of four engines gets faults.
func sick(f faults.Faults) func(t *testing.T) (*stand, func()) {
	return func(t *testing.T) (*stand, func()) {
		s := open(t, 4, sim.Options{Speed: 20})
		s.keepAsking(t, "", 8)
		testkit.Await(t, "every engine has answered", func() bool {
			for _, e := range s.engines.Engines() {
				if s.metric(t, "grapevine_requests_total", e.Addr()) == "" {
					return false
				}
			}
			return true
		})
		return s, func() { s.engines.Engines()[0].SetFaults(f) }
	}
}

const soundConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, name: gate, parameters: {maxConcurrency: 2}}
flowControl:
  defaultRequestTTL: 30s
  saturationDetector: {pluginRef: gate}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wrongConfiguration(t *testing.T) (*stand, func()) {
	file := filepath.Join(t.TempDir(), "epp.yaml")
	write(t, file, soundConfig)
	s := open(t, 2, sim.Options{Speed: 20}, "--config", file)
	return s, func() { write(t, file, strings.Replace(soundConfig, "maxConcurrency", "maxConcurency", 1)) }
}

func flood(t *testing.T) (*stand, func()) {
	file := filepath.Join(t.TempDir(), "epp.yaml")
	write(t, file, soundConfig)
	s := open(t, 2, sim.Options{Speed: 1}, "--config", file)
	s.keepAsking(t, "small", 1)
	return s, func() { s.keepAsking(t, "large", 24) }
}

// serve starts `grapevine serve` in front of two engines, and opens the page.
func serve(t *testing.T, args ...string) (s *stand, endpoints string) {
	t.Helper()
	endpoints = filepath.Join(t.TempDir(), "endpoints.yaml")
	engines, err := fleet.Open(fleet.Options{Engines: 2, Engine: sim.Options{Speed: 20}, EndpointsFile: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	s = &stand{engines: engines, admin: parts.FreeAddress(t)}
	run(t, append([]string{"serve", "--endpoints", endpoints, "--admin", s.admin, "--listen", parts.FreeAddress(t), "--health", parts.FreeAddress(t)}, args...)...)
	testkit.Await(t, "the page", func() bool {
		resp, err := http.Get("http://" + s.admin + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	})
	s.browse(t)
	return s, endpoints
}

func damagedList(t *testing.T) (*stand, func()) {
	s, endpoints := serve(t)
	return s, func() { write(t, endpoints, "endpoints: [") }
}

func oldCertificate(t *testing.T) (*stand, func()) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certify(t, cert, key, 365*24*time.Hour)
	s, _ := serve(t, "--tls-cert", cert, "--tls-key", key)
	return s, func() { certify(t, cert, key, 24*time.Hour) }
}

// certify writes a certificate that is valid for a while.
func certify(t *testing.T, cert, key string, valid time.Duration) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "picker"}, DNSNames: []string{"picker"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}
