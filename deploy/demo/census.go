package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
)

// census holds the number of answers by pod.
type census map[string]int

type row struct {
	service, pod string
	answers      int
	// share is the percentage of the service's answers.
	share float64
}

// add counts all servers that took part in an answer.
func (c census) add(a echo.Answer) {
	c[a.Name]++
	for _, called := range a.Calls {
		c.add(called)
	}
}

// rows returns the rows, sorted by service and pod.
func (c census) rows() []row {
	total := map[string]int{}
	rows := make([]row, 0, len(c))
	for pod, n := range c {
		service := pod[:strings.LastIndex(pod, "-")]
		total[service] += n
		rows = append(rows, row{service: service, pod: pod, answers: n})
	}
	for i := range rows {
		rows[i].share = 100 * float64(rows[i].answers) / float64(total[rows[i].service])
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.pod, b.pod) })
	return rows
}
