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
	Killed         bool   // on purpose
}

// Status is the part of a replica's status that demos look at.
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

// String says what joining waits for.
func (s *Status) String() string {
	return fmt.Sprintf("%s, %s with %d members (%s), %d engines known exactly", s.State, s.Cluster.State, len(s.Members), s.Cluster.Line, s.Exact())
}

// Exact counts the engines that are known exactly.
func (s *Status) Exact() (n int) {
	for _, e := range s.Endpoints {
		if e.Knowledge == "exact" {
			n++
		}
	}
	return n
}

// Status asks the replica, which has ten seconds to answer.
func (p *Replica) Status() (*Status, error) {
	var st Status
	return &st, p.Read(10*time.Second, &st)
}

// Read fills the part of the replica's status that to describes.
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

// Metrics adds up the series of each name on the replica's metrics page.
func (p *Replica) Metrics(names ...string) ([]float64, error) {
	// Without compression: a compressor's tables are a megabyte of what is measured.
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

// ready waits until the replica says that it is.
func (p *Replica) ready(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	return p.WaitHTTP(wait, "http://"+p.Admin+"/readyz")
}
