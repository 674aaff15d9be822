//go:build page

package page

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/testkit/promkit"
)

// calmTime is how long Prometheus scrapes the calm replica before the incident.
const calmTime = 10 * time.Minute

var (
	rules   = problems.Rules(problems.Objectives{Namespace: `"prod"`, Errors: "0.1", FirstTokenSeconds: "2", LateFirstTokens: "5"})
	alerted = regexp.MustCompile(`grapevine_[a-z_]+`)
)

// scrape returns the series of a replica's metrics page that alerts read, with the labels that
// Prometheus adds in a cluster.
func (s *stand) scrape(t *testing.T) map[string]string {
	t.Helper()
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, name := range alerted.FindAllString(rules, -1) {
		read[name] = true
	}
	series := map[string]string{}
	for line := range strings.Lines(string(page)) {
		name := alerted.FindString(line)
		if !strings.HasPrefix(line, name) || !read[name] {
			continue
		}
		of, value := line[:strings.LastIndexByte(line, ' ')], strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		_, labels, _ := strings.Cut(strings.TrimSuffix(of, "}"), "{")
		if labels != "" {
			labels = "," + labels
		}
		series[fmt.Sprintf(`%s{namespace="prod",pod="llama-epp-1"%s}`, name, labels)] = value
	}
	return series
}

// fires evaluates the alerts of the chart with promtool, on what was scraped before the incident and
// during it. No alert fires before, and that of p fires once its time has passed.
func fires(t *testing.T, p *problems.Problem, before, during map[string]string) {
	t.Helper()
	hold := promkit.Hold(t, p)
	minutes := func(d time.Duration) int { return int(d / time.Minute) }
	c := promkit.Case{Series: map[string]string{}}
	for of, value := range during {
		old, ok := before[of]
		if !ok {
			old = "_"
		}
		c.Series[of] = fmt.Sprintf("%sx%d %sx%d", old, minutes(calmTime)-1, value, minutes(hold)+10)
	}
	for i := range problems.Table {
		if q := &problems.Table[i]; q.Alert != nil {
			c.Checks = append(c.Checks, promkit.Check{Problem: q, At: calmTime - time.Minute})
		}
	}
	c.Checks = append(c.Checks, promkit.Check{Problem: p, At: calmTime + hold + time.Minute, Labels: map[string]string{}})
	promkit.Evaluate(t, rules, c)
}
