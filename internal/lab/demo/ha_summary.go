package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// haStatus is the part of a replica's status that matters here.
type haStatus struct {
	State     string `json:"state"`
	Decisions int    `json:"decisions"`
	Cluster   struct {
		State    string `json:"state"`
		Line     string `json:"line"`
		Fallback string `json:"fallback"`
	} `json:"cluster"`
	Members []struct{} `json:"members"`
	Index   struct {
		Entries int `json:"entries"`
	} `json:"index"`
	Endpoints []struct {
		Address   string `json:"address"`
		Knowledge string `json:"knowledge"`
		Health    struct {
			State string `json:"state"`
			Cause string `json:"cause"`
		} `json:"health"`
	} `json:"endpoints"`
}

// String says what joining waits for.
func (s *haStatus) String() string {
	return fmt.Sprintf("%s, %s with %d members (%s), %d engines known exactly", s.State, s.Cluster.State, len(s.Members), s.Cluster.Line, s.exact())
}

// exact counts the engines that are known exactly.
func (s *haStatus) exact() (n int) {
	for _, e := range s.Endpoints {
		if e.Knowledge == "exact" {
			n++
		}
	}
	return n
}

func (p *replica) status() (*haStatus, error) {
	var st haStatus
	return &st, p.read(&st)
}

// read fills the part of the replica's status that to describes.
func (p *replica) read(to any) error {
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + p.admin + "/status")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(to)
}

// Write prints the summary as a person reads it.
func (s *HASummary) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%-28s %8s %10s %8s %14s %14s\n", "step", "took", "requests", "failed", "hits, answers", "hits, sent")
	for _, st := range s.Steps {
		fmt.Fprintf(w, "%-28s %7.1fs %10d %8d %13.1f%% %13.1f%%\n", st.Name, st.Took.Seconds(), st.Requests, st.Failed, 100*st.HitRatio, 100*st.SentRatio)
	}
	fmt.Fprintln(w, "Hits are what engines report: of the answers that ended in a step, and of the requests that were sent in it, whenever they ended.")
	fmt.Fprintf(w, "\n%d engines, %d replicas in an encrypted gossip group.\n", s.Engines, s.Replicas)
	fmt.Fprintf(w, "A replica that was started anew knew every engine exactly after %d ms.\n", s.Newcomer.Milliseconds())
	fmt.Fprintf(w, "With every replica dead, Envoy answered %d requests by its fallback policy.\n", s.FallbackRequests)
	if s.OK() {
		fmt.Fprintln(w, "OK: no request failed.")
	} else {
		fmt.Fprintf(w, "FAILED: %d requests failed, the last one with: %v\n", s.Failed(), s.LastError)
	}
}
