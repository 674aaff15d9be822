package prefix

import "testing"

func TestJudgeDistrustsARecordOfOverPredictions(t *testing.T) {
	var j judge
	for i := range judgeMemory {
		if distrust, _ := j.add(1, verdict{over: i%4 == 0}); distrust {
			t.Fatalf("distrusted after %d comparisons, a quarter of them over", i+1)
		}
	}
	distrusted := false
	for range judgeMemory {
		d, _ := j.add(1, verdict{over: true})
		distrusted = distrusted || d
	}
	if !distrusted {
		t.Error("nothing but over-predictions, and trusted")
	}
	trust := false
	for range judgeTrust {
		_, trust = j.add(2, verdict{})
	}
	if !trust {
		t.Error("a run of right predictions does not count")
	}
}
