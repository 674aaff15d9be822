package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Replica is one replica of a Rig.
type Replica struct {
	*Process
	Args           []string
	ExtProc, Admin string // host:port
	Killed         bool   // deliberately
}

// Status is the part of a replica's status that demos use.
type Status struct {
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

// String describes the conditions that the replica is still waiting for.
func (s *Status) String() string {
	return fmt.Sprintf("%s, %s with %d members (%s), %d engines known exactly", s.State, s.Cluster.State, len(s.Members), s.Cluster.Line, s.Exact())
}

// Exact counts the engines whose cache content is known exactly.
func (s *Status) Exact() (n int) {
	for _, e := range s.Endpoints {
		if e.Knowledge == "exact" {
			n++
		}
	}
	return n
}

// Status requests the replica's status, with a timeout of ten seconds.
func (p *Replica) Status() (*Status, error) {
	var st Status
	return &st, p.Read(10*time.Second, &st)
}

// Read decodes the replica's status into to.
func (p *Replica) Read(within time.Duration, to any) error {
	client := &http.Client{Timeout: within}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + p.Admin + "/status")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(to)
}

// Metrics returns the sum over all series of each name.
func (p *Replica) Metrics(names ...string) ([]float64, error) {
	// No compression: the tables of a compressor would add a megabyte to the measured memory.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + p.Admin + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	defer resp.Body.Close()
	sums := make([]float64, len(names))
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		space := strings.LastIndexByte(lines.Text(), ' ')
		if space < 0 {
			continue
		}
		name, _, _ := strings.Cut(lines.Text()[:space], "{")
		value := lines.Text()[space+1:]
		for i, n := range names {
			if n == name {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p.Name, err)
				}
				sums[i] += v
			}
		}
	}
	return sums, lines.Err()
}

// ready waits until the replica reports that it is ready.
func (p *Replica) ready(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	return p.WaitHTTP(wait, "http://"+p.Admin+"/readyz")
}
