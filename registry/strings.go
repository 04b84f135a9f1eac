package registry

import "fmt"

func (r Resolution) String() string {
	return enumName(int(r), "client side", "DNS", "DNS round robin", "dynamic DNS", "passthrough", "alias")
}

func (p Origin) String() string { return enumName(int(p), "Kubernetes", "External") }

func (h Health) String() string { return enumName(int(h), "healthy", "unhealthy", "draining") }

func enumName(i int, words ...string) string {
	if i < 0 || i >= len(words) {
		return fmt.Sprint(i)
	}
	return words[i]
}
