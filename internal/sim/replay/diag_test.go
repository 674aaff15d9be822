package replay

import (
	"fmt"
	"os"
	"testing"
	"time"
	"strings"
)

func TestDiag(t *testing.T) {
	w, _ := WorkloadByName(os.Getenv("WL"))
	var rate float64
	fmt.Sscan(os.Getenv("RATE"), &rate)
	tr := w.Generate(GenerateOptions{Rate: rate, Seed: 1, Length: 30 * time.Minute})
	s := &scenario{tr: tr}
	var ps []Policy
	for _, n := range []string{"unified", "sticky"} {
		p, _ := PolicyByName(n)
		ps = append(ps, p)
	}
	for _, v := range strings.Split(os.Getenv("V"), ";") {
		ps = append(ps, expPolicy(defPar.with(v)))
	}
	for _, p := range ps {
		r := s.run(t, p)
		fmt.Println(p.Name)
		last := map[int32]int{}
		for m := 0; m < 30; m += 2 {
			in, hit, n, moves, ttft := 0, 0, 0, 0, 0.0
			per := make([]int, 8)
			ses := make([]map[int32]bool, 8)
			for i := range ses { ses[i] = map[int32]bool{} }
			for i, q := range tr.Requests {
				if int(q.At.Minutes()) < m || int(q.At.Minutes()) >= m+2 {
					continue
				}
				o := r.Outcomes[i]
				in += q.Input
				hit += o.Cached
				n++
				per[o.Endpoint]++
				ses[o.Endpoint][q.Session] = true
				if e, ok := last[q.Session]; ok && e != o.Endpoint {
					moves++
				}
				last[q.Session] = o.Endpoint
				ttft += (o.First - q.At).Seconds()
			}
			var sc []int
			for _, x := range ses { sc = append(sc, len(x)) }
			fmt.Printf("  %2d n=%d in=%d hit=%.3f moves=%.3f ttft=%.2f per=%v ses=%v\n", m, n, in/n, float64(hit)/float64(in), float64(moves)/float64(n), ttft/float64(n), per, sc)
		}
	}
}
