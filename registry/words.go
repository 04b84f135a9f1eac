package registry

import "fmt"

func (r Resolution) String() string {
	return word(int(r), "client side", "DNS", "DNS round robin", "dynamic DNS", "passthrough", "alias")
}

func (p Provider) String() string { return word(int(p), "Kubernetes", "External") }

func (h Health) String() string { return word(int(h), "healthy", "unhealthy", "draining") }

func word(i int, words ...string) string {
	if i < 0 || i >= len(words) {
		return fmt.Sprint(i)
	}
	return words[i]
}
