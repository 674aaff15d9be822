package strict

import "strings"

// Nearest returns the candidate most similar to word, or "" if none is similar. Letter case, dashes
// and underscores count little; ties go to the first.
func Nearest(word string, candidates []string) string {
	plain := fold(word)
	best, bestDistance := "", 1+max(1, min(len(plain), 24)/4)
	for _, c := range candidates {
		d := distance(plain, fold(c))
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// DidYouMean formats Nearest as a hint, or returns "".
func DidYouMean(word string, candidates []string) string {
	if n := Nearest(word, candidates); n != "" {
		return "did you mean " + quote(n) + "?"
	}
	return ""
}

func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
}

// distance is the edit distance between a and b, counting swaps of neighbors as one. Only the
// beginning of long words is compared.
func distance(a, b string) int {
	const most = 64
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	var rows [3][most + 1]int
	for j := range b {
		rows[0][j+1] = j + 1
	}
	for i := 1; i <= len(a); i++ {
		row, above, above2 := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			swap := above[j-1]
			if a[i-1] != b[j-1] {
				swap++
			}
			row[j] = min(swap, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], above2[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
