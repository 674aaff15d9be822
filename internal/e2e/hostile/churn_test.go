//go:build hostile

package hostile

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const (
	churnRounds = 40
	churnEach   = 500 // new addresses per round
	churnLooks  = 2   // number of measurements, with all addresses removed
	// churnLeft is how many bytes 10,000 more addresses may leave behind: 100 bytes each. Half of
	// that is the variation of an idle program, whose requests to endpoints come and go.
	churnLeft = 1 << 20
	// churnForget is slightly longer than the time after which the state of a removed address is
	// dropped.
	churnForget = 65 * time.Second
)

// TestChurn adds and removes 20,000 addresses, with unauthenticated connections and new
// certificates on the side. Once their state is dropped, memory must be at the earlier level. Half
// of the addresses precede the first measurement, so tables have grown to their size.
func TestChurn(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	program := filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	round := func(n int) (list []string) {
		for i := range churnEach {
			k := n*churnEach + i
			list = append(list, fmt.Sprintf("127.%d.%d.%d:9", 1+k>>16, k>>8&255, k&255))
		}
		return list
	}
	cert, key := r.certify()
	c := lockUp(t, program, "--endpoints", r.writeEndpoints(round(0)...), "--tls-cert", cert, "--tls-key", key)
	files := c.files()
	live := []float64{c.rested(t, 0)}
	for n := 1; n <= churnRounds; n++ {
		r.writeEndpoints(round(n)...)
		r.certify()
		r.strangers(c.extproc)
		time.Sleep(1500 * time.Millisecond)
		if !c.alive() {
			t.Fatalf("the program is dead after %d addresses; its log ends with\n%s", n*churnEach, tail(c.log.String()))
		}
		if n%(churnRounds/churnLooks) == 0 {
			r.writeEndpoints(round(0)...)
			live = append(live, c.rested(t, len(live)))
		}
	}
	text := ""
	for _, n := range live {
		text += fmt.Sprintf(" %.2f", n/(1<<20))
	}
	t.Logf("512 MiB, held by: %s; %d addresses: live heap after each %d%s MiB, peak of the process %d MiB, files %d and %d",
		c.kind, churnRounds*churnEach, churnRounds/churnLooks*churnEach, text, c.peak.Load()>>20, files, c.files())
	if grown := live[churnLooks] - live[churnLooks-1]; grown > churnLeft {
		t.Errorf("%.2f MiB are held for the last %d addresses, which are gone", grown/(1<<20), churnRounds/churnLooks*churnEach)
	}
	if !testkit.PollUntil(func() bool { return c.files() < files+50 }) {
		t.Errorf("%d files are open, %d at first", c.files(), files)
	}
}

// strangers connects to the proxies' port and disconnects at once, during a handshake, and after
// it.
func (r *rig) strangers(at string) {
	for i := range 30 {
		c, err := net.DialTimeout("tcp", at, time.Second)
		if err != nil {
			r.t.Error(err)
			return
		}
		switch i % 3 {
		case 1:
			_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1})
		case 2:
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_ = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake() // any result is fine
		}
		_ = c.Close()
	}
}

// profiles is where profiles go: of the heap at each look, of the processor in each attack.
var profiles = flag.String("hostile.profiles", "", "folder for profiles (with GODEBUG=memprofilerate=16384 those of the heap say all)")

// rested waits until the state of removed endpoints is dropped, and returns the smallest live heap
// of several measurements. A single one also contains up to 2 MiB of pages that are being read.
func (c *cage) rested(t *testing.T, look int) float64 {
	t.Helper()
	time.Sleep(churnForget)
	path := os.DevNull
	if *profiles != "" {
		path = filepath.Join(*profiles, fmt.Sprintf("heap-%d", look))
	}
	least := math.Inf(1)
	for i := range 10 { // sync.Pool needs two collections
		if err := c.save("/debug/pprof/heap?gc=1", path); err != nil {
			t.Fatalf("%v; the log ends with\n%s", err, tail(c.log.String()))
		}
		if i > 0 {
			least = min(least, c.counters()["go_gc_heap_live_bytes"])
			time.Sleep(300 * time.Millisecond)
		}
	}
	return least
}

// save writes a page to a file.
func (c *cage) save(page, path string) error {
	resp, err := impatient.Get("http://" + c.admin + page)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}

// certify writes a new certificate and its key.
func (r *rig) certify() (certFile, keyFile string) {
	cert, err := listen.SelfSigned(time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		r.t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		path := filepath.Join(r.dir, name)
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(b), 0o600); err != nil {
			r.t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			r.t.Fatal(err)
		}
	}
	return filepath.Join(r.dir, "tls.crt"), filepath.Join(r.dir, "tls.key")
}
