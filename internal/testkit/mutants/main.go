package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	defaultList = "internal/testkit/mutants/list.txt"
	limit       = 5 * time.Minute // for one change
)

func main() {
	only := flag.String("only", "", "changes whose name has this in it; with -random, files that match one of these patterns, such as picker/*.go,events/*.go")
	part := flag.String("part", "1/1", "the part of the list to try, such as 2/6: every sixth change, from the second on")
	random := flag.Int("random", 0, "try that many random mutations over all packages instead of a list")
	kind := flag.String("kind", "", "with -random, mutations whose kind has this in it, such as copied")
	tests := flag.String("run", "", "with -random, only tests whose names match this regular expression")
	rules := flag.Bool("rules", false, "try all mutations that remove or invert a rule of trust, budget and admission code")
	seed := flag.String("seed", "1", "seed of the random mutations, such as a commit")
	share := flag.Float64("caught", 0.65, "share of all random mutations that tests must catch; small samples may have less")
	limit := flag.Duration("for", 2*time.Hour, "start no further change after that time")
	flag.Parse()
	if *rules {
		*random = -1
	}
	if *random != 0 {
		if err := runRandom(*random, selection{*seed, *only, *kind, *tests}, *share, *limit); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	list := defaultList
	if flag.NArg() > 0 {
		list = flag.Arg(0)
	}
	if err := run(list, *only, *part, *limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// mutant is one change.
type mutant struct {
	name, file, old, new string
	tests                []string
}

// workers is the number of changes that are tried at a time.
const workers = 2

func run(list, only, part string, limit time.Duration) error {
	var nth, parts int
	if _, err := fmt.Sscanf(part, "%d/%d", &nth, &parts); err != nil || nth < 1 || nth > parts {
		return fmt.Errorf("part %q: want such as 2/6", part)
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	all, err := parse(string(text))
	if err != nil {
		return err
	}
	var chosen []*mutant
	for i := range all {
		if strings.Contains(all[i].name, only) && i%parts == nth-1 {
			chosen = append(chosen, &all[i])
		}
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var mu sync.Mutex
	alive := 0
	skipped := each(chosen, limit, func(worker int, m *mutant) {
		began := time.Now()
		verdict, err := m.try(filepath.Join(dir, strconv.Itoa(worker)))
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			verdict = "ERROR"
			fmt.Fprintln(os.Stderr, err)
		}
		if verdict != noticed {
			alive++
		}
		fmt.Printf("%-9s %5.1fs  %s\n", verdict, time.Since(began).Seconds(), m.name)
	})
	tried := len(chosen) - skipped
	fmt.Printf("%d of %d changes were noticed (%d not tried for lack of time)\n", tried-alive, tried, skipped)
	if alive > 0 {
		return errors.New("some were not, or are not possible any more")
	}
	return nil
}

// each calls try for each change of a list, by several workers. It starts none after the limit and
// returns how many it left out.
func each[T any](list []T, limit time.Duration, try func(worker int, m T)) (skipped int) {
	end := time.Now().Add(limit)
	next := make(chan T)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for m := range next {
				try(worker, m)
			}
		})
	}
	for i, m := range list {
		if time.Now().After(end) {
			skipped = len(list) - i
			break
		}
		next <- m
	}
	close(next)
	wg.Wait()
	return skipped
}

// parse reads a list.
func parse(text string) (all []mutant, err error) {
	for block := range strings.SplitSeq("\n"+text, "\n== ") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		if len(lines) < 5 {
			continue // text before the first block
		}
		m := mutant{name: lines[0], file: lines[1], tests: strings.Fields(lines[2])}
		for _, l := range lines[3:] {
			switch {
			case strings.HasPrefix(l, "- "):
				m.old += l[2:] + "\n"
			case strings.HasPrefix(l, "+ "):
				m.new += l[2:] + "\n"
			case l == "+":
			default:
				return nil, fmt.Errorf("%s: what is %q?", m.name, l)
			}
		}
		m.old, m.new = strings.TrimSuffix(m.old, "\n"), strings.TrimSuffix(m.new, "\n")
		all = append(all, m)
	}
	return all, nil
}

const (
	noticed  = "noticed"
	survived = "SURVIVED"
)

// try runs the tests of m with its change made.
func (m *mutant) try(dir string) (verdict string, err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times", m.file, m.old, n)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		return "", err
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", append([]string{"test", "-overlay", overlay, "-vet=off", "-failfast", "-timeout", "4m"}, m.tests...)...).CombinedOutput()
	switch {
	case err == nil:
		return survived, nil
	case strings.Contains(string(out), "[build failed]"):
		return "", fmt.Errorf("does not compile: %s", out)
	}
	return noticed, nil
}
