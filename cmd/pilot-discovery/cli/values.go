package cli

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/istiod-lite/istiod-lite/cmd/terminal"
)

// Checks validate the values of flags by the flag's name. Each returns an error with the reason and the remedy. The
// flag parser has already checked the type of the value.
type Checks map[string]func(value string) error

// Run checks every flag of the set that has a check, also if it is not given: defaults come from the environment.
func (c Checks) Run(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if check := c[f.Name]; check != nil {
			if err := check(f.Value.String()); err != nil {
				errs = append(errs, fmt.Errorf("--%s=%s: %w", f.Name, Quoted(f.Value.String()), err))
			}
		}
	})
	return errors.Join(errs...)
}

// Quoted quotes values that are invisible without quotes, or that have characters which a terminal would interpret.
func Quoted(value string) string {
	if value == "" || strings.ContainsAny(value, " \"") || terminal.Plain(value) != value {
		return strconv.Quote(value)
	}
	return value
}

// CheckDomain rejects values that are not DNS domains.
func CheckDomain(v string) error {
	if content.IsDNS1123Subdomain(v) != nil {
		return errors.New("write the DNS domain of the cluster, for example cluster.local")
	}
	return nil
}

// CheckNamespace rejects values that are not names of namespaces.
func CheckNamespace(v string) error {
	if content.IsDNS1123Label(v) != nil {
		return errors.New("write the name of a namespace, for example istio-system")
	}
	return nil
}

// CheckRevision rejects values that are not names of revisions. The empty string is the default revision.
func CheckRevision(v string) error {
	if v != "" && content.IsDNS1123Label(v) != nil {
		return errors.New("write a name of lower-case letters, digits and dashes, for example canary, or nothing")
	}
	return nil
}

// CheckClusterID rejects values that are no cluster ID, or that would break the texts into which IDs are inserted.
func CheckClusterID(v string) error {
	if v == "" || len(v) > 253 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' || r == '~' }) {
		return errors.New("write the name of the cluster that proxies have in CLUSTER_ID, without spaces, for example Kubernetes")
	}
	return nil
}

// CheckAddress checks that a value is host:port, where an empty host means all addresses of this machine, or empty,
// which disables the listener.
func CheckAddress(v string) error {
	if v == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("write host:port or :port, with a port from 0 (a free one) to 65535, for example :15010")
	}
	return nil
}

// CheckQPS rejects values that are not numbers of requests a second.
func CheckQPS(v string) error {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(n) || n < 0.1 || n > math.MaxInt32 {
		return errors.New("write a number of requests a second, for example 80")
	}
	return nil
}

// DurationOf returns a check for durations from least to ten years. what says what to write instead of another value.
func DurationOf(least time.Duration, what string) func(string) error {
	const most = 10 * 365 * 24 * time.Hour
	return func(v string) error {
		if d, err := time.ParseDuration(v); err != nil || d < least || d > most {
			return errors.New("write " + what)
		}
		return nil
	}
}

// NumberOf returns a check for whole numbers from least to most. what says what to write instead of another value.
func NumberOf(least, most int64, what string) func(string) error {
	return func(v string) error {
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < least || n > most {
			return errors.New("write " + what)
		}
		return nil
	}
}

// SplitName splits NAME.NAMESPACE. The name of a Pod may contain dots, a namespace may not.
func SplitName(text string) (name, namespace string, err error) {
	i := strings.LastIndexByte(text, '.')
	if i <= 0 || CheckNamespace(text[i+1:]) != nil || strings.ContainsAny(text, "~ \t\n") {
		return "", "", errors.New("write NAME.NAMESPACE, for example web-1.default")
	}
	return text[:i], text[i+1:], nil
}

// Fields splits a list at commas.
func Fields(list string) []string {
	var out []string
	for f := range strings.SplitSeq(list, ",") {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}

// Exists reports whether a path can be found.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Cidrs returns the prefixes that a variable lists.
func Cidrs(key, text string) (list []netip.Prefix, err error) {
	for _, cidr := range Fields(text) {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: write CIDRs separated by commas: %w", key, text, err)
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

// CheckNativeSidecars returns an error for an invalid value of ENABLE_NATIVE_SIDECARS.
func CheckNativeSidecars(value string) error {
	if !slices.Contains([]string{"auto", "true", "false"}, value) {
		return fmt.Errorf("ENABLE_NATIVE_SIDECARS=%s: write true, false or auto", Quoted(value))
	}
	return nil
}
