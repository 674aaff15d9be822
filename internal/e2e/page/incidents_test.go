//go:build page

package page

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// incident is a fault, and the problem that an operator must see.
type incident struct {
	name string
	code problems.Code
	// start starts a calm replica and returns it with the function that causes the fault.
	start  func(t *testing.T) (s *stand, cause func())
	within time.Duration // from the fault to the code in the status
	shows  string        // another text of the page during the incident
}

var incidents = []incident{
	{name: "an engine dies", code: problems.Refused, start: killed, within: 15 * time.Second},
	{name: "an engine hangs", code: problems.Hung, start: sick(faults.Faults{Hang: faults.HangFrozen}), within: 30 * time.Second},
	{name: "an engine fails every request", code: problems.Failing, start: sick(faults.Faults{ErrorShare: 1}), within: 15 * time.Second},
	{name: "an engine rejects every request", code: problems.Declining, start: sick(faults.Faults{ErrorShare: 1, ErrorStatus: http.StatusUnauthorized}), within: 30 * time.Second},
	{name: "an engine sends half of its answers", code: problems.Invalid, start: sick(faults.Faults{Answer: faults.AnswerCut}), within: 30 * time.Second},
	{name: "an engine uses another chat template", code: problems.Mismatched, start: otherTemplate, within: time.Minute},
	{name: "an engine's event port is closed", code: problems.StreamLost, start: closedEvents, within: time.Minute},
	{name: "a configuration is wrong", code: problems.Config, start: wrongConfiguration, within: 15 * time.Second, shows: "the file as it is"},
	{name: "one tenant floods the pool", code: problems.Saturated, start: flood, within: 15 * time.Second, shows: "Who waits"},
	{name: "the endpoint list is damaged", code: problems.StaleList, start: damagedList, within: 15 * time.Second},
	{name: "the API server is away", code: problems.StaleList, start: awayAPIServer, within: 30 * time.Second},
	{name: "a certificate expires soon", code: problems.Certificate, start: renewedFor(24 * time.Hour), within: 15 * time.Second, shows: "certificate expires soon: "},
	{name: "a certificate has expired", code: problems.Certificate, start: renewedFor(-time.Minute), within: 15 * time.Second, shows: "expired"},
	{name: "a replica has another key", code: problems.Alone, start: wrongKey, within: time.Minute, shows: "because of their key"},
	{name: "NATS is lost", code: problems.Partitioned, start: lostNATS, within: 30 * time.Second, shows: "not connected to nats"},
	{name: "a clock differs", code: problems.Clocks, start: skewedClock, within: 15 * time.Second, shows: "ahead of this replica"},
	{name: "memory runs out soon", code: problems.Memory, start: littleMemory, within: 30 * time.Second, shows: "MiB are needed"},
}

// TestIncidents causes one incident after the other, on the programs that ship. Status and page name
// each by its code, with the effect and the action of the runbook, within a time limit. The alert of
// the code fires on the scraped metrics, and no alert does before.
func TestIncidents(t *testing.T) {
	runbook, err := os.ReadFile("../../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	described, err := os.ReadFile(incidentPage)
	if err != nil {
		t.Fatal(err)
	}
	var measured, sections []string
	for _, in := range incidents {
		t.Run(in.name, func(t *testing.T) {
			p, ok := problems.Lookup(string(in.code))
			if !ok || p.Alert == nil || !strings.Contains(string(runbook), "### "+string(in.code)+"\n") {
				t.Fatalf("%s has no section in the runbook, or no alert", in.code)
			}
			s, cause := in.start(t)
			s.calm(t)
			before := s.scrape(t)

			began := time.Now()
			cause()
			inStatus := testkit.Eventually(t, func() string {
				if codes := s.codes(t); !slices.Contains(codes, in.code) {
					return fmt.Sprintf("/status has problems %v, want %s", codes, in.code)
				}
				return ""
			})
			if inStatus > in.within {
				t.Errorf("%s is in the status after %s, want at most %s", in.code, inStatus.Round(100*time.Millisecond), in.within)
			}
			s.await(t, firstHeading, string(in.code))
			onPage := time.Since(began)
			got := s.eval(t, firstHeading)
			for _, want := range []string{p.Title, "Effect: " + plain(p.Effect), plain(p.PlainActions()[0])} {
				if !strings.Contains(got, want) {
					t.Errorf("the page shows %q, want %q in it", got, want)
				}
			}
			if got, want := s.eval(t, `document.querySelector("#out section a").href`), problems.Runbook+"#"+strings.ToLower(string(in.code)); got != want {
				t.Errorf("the problem's code links to %q, want %q", got, want)
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
			inMetrics := time.Since(began)
			section := in.section(&p)
			if sections = append(sections, section); !*rewrite && !strings.Contains(string(described), section) {
				t.Errorf("%s lacks this section; make test-page PAGE_ARGS=-rewrite writes it:\n%s", incidentPage, section)
			}
			s.pictureOf(t, "#out section", in.picture())
			fires(t, &p, before, s.scrape(t))
			if text := output(t, "status", "--admin", s.admin); !strings.Contains(text, string(in.code)+" ") || !strings.Contains(text, p.Title) {
				t.Errorf("grapevine status prints no %s:\n%s", in.code, text)
			}
			if text := output(t, "help", string(in.code)); !strings.Contains(text, "docs/runbook.md#"+strings.ToLower(string(in.code))) {
				t.Errorf("grapevine help %s has no link to the runbook:\n%s", in.code, text)
			}
			measured = append(measured, fmt.Sprintf("| %s | [%s](../runbook.md#%s) | `%s` | %.1f s | %.1f s | %.1f s | %s |", in.name, in.code, strings.ToLower(string(in.code)), p.Alert.Name,
				inStatus.Seconds(), onPage.Seconds(), inMetrics.Seconds(), cmp.Or(p.Alert.For, "0")))
		})
	}
	t.Logf("times from the fault:\n%s", strings.Join(measured, "\n"))
	if *rewrite && len(sections) == len(incidents) {
		before, _, _ := strings.Cut(string(described), "\n## An engine dies\n")
		write(t, incidentPage, before+"\n"+strings.Join(sections, "\n"))
	}
}

// incidentPage is the page of the documentation that has a section on each incident.
const incidentPage = "../../../docs/tasks/incidents.md"

// picture returns the name of the picture in the documentation, relative to its folder.
func (in *incident) picture() string {
	return "incidents/" + strings.NewReplacer(" ", "-", "'", "").Replace(strings.ToLower(in.name)) + ".png"
}

// section returns the section of the incident in the documentation.
func (in *incident) section(p *problems.Problem) string {
	return fmt.Sprintf("## %s\n\nThe status page shows [%s](../runbook.md#%s), and the alert is `%s`:\n\n![Status page: %s, with its effect and remedy](../%s)\n",
		strings.ToUpper(in.name[:1])+in.name[1:], in.code, strings.ToLower(string(in.code)), p.Alert.Name, p.Title, in.picture())
}

// codes returns the codes of the problems in the status.
func (s *stand) codes(t *testing.T) (list []problems.Code) {
	t.Helper()
	for _, f := range s.status(t).Problems {
		list = append(list, f.Code)
	}
	return list
}

func (s *stand) status(t *testing.T) (st server.Status) {
	t.Helper()
	resp, err := http.Get("http://" + s.admin + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	return st
}

// calm waits until status and metrics have no problem that somebody has to act on.
func (s *stand) calm(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, func() string {
		for _, f := range s.status(t).Problems {
			if f.Severity != problems.Notice {
				return fmt.Sprintf("before the incident, %s: %s", f.Code, f.Summary())
			}
		}
		for of, value := range s.scrape(t) {
			for i := range problems.Table {
				if p := &problems.Table[i]; p.Severity != problems.Notice && value != "0" && strings.Contains(of, "grapevine_problems{") && strings.Contains(of, string(p.Code)) {
					return "before the incident, the metrics have " + of
				}
			}
		}
		return ""
	})
}

// output runs grapevine and returns what it prints.
func output(t *testing.T, args ...string) string {
	t.Helper()
	out, _ := exec.Command(program(t), args...).CombinedOutput() // status reports problems by its code
	return string(out)
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
		if line := lines.Text(); (strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")) && strings.Contains(line, label) {
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
	return serveFleet(t, fleet.Options{Engines: 2, Engine: sim.Options{Speed: 20}}, args...)
}

// serveFleet is serve with other engines.
func serveFleet(t *testing.T, o fleet.Options, args ...string) (s *stand, endpoints string) {
	t.Helper()
	o.EndpointsFile = filepath.Join(t.TempDir(), "endpoints.yaml")
	engines, err := fleet.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	s = &stand{engines: engines, admin: parts.FreeAddress(t)}
	s.serve(t, append([]string{"--endpoints", o.EndpointsFile}, args...)...)
	s.browse(t)
	return s, o.EndpointsFile
}

// serve starts `grapevine serve`, and waits until it answers.
func (s *stand) serve(t *testing.T, args ...string) {
	t.Helper()
	model := filepath.Join(t.TempDir(), "model")
	if err := vocab.New().WriteModel(model); err != nil {
		t.Fatal(err)
	}
	s.run(t, append([]string{"serve", "--model", vocab.Name + "=" + model, "--admin", s.admin, "--listen", parts.FreeAddress(t), "--health", parts.FreeAddress(t)}, args...)...)
	testkit.Await(t, "the page", func() bool {
		resp, err := http.Get("http://" + s.admin + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	})
}

func damagedList(t *testing.T) (*stand, func()) {
	s, endpoints := serve(t)
	return s, func() { write(t, endpoints, "endpoints: [") }
}

// renewedFor replaces a certificate by one that is valid for a while from now.
func renewedFor(valid time.Duration) func(t *testing.T) (*stand, func()) {
	return func(t *testing.T) (*stand, func()) {
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		certify(t, cert, key, 365*24*time.Hour)
		s, _ := serve(t, "--tls-cert", cert, "--tls-key", key)
		return s, func() { certify(t, cert, key, valid) }
	}
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
