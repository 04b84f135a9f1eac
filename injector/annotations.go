package injector

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// badAnnotation returns the error of a pod whose annotation has an invalid value.
func badAnnotation(name, value string, err error) error {
	return fmt.Errorf("the pod's annotation %s has the value %s, which cannot be used: %w", name, quoted(value), err)
}

// checkAnnotations returns all faults of the annotations that templates read, joined into one error.
func checkAnnotations(annotations map[string]string) error {
	checks := map[string]func(string) error{
		names.AnnotationReadinessFailures:       checkUint32,
		names.AnnotationReadinessDelay:          checkUint32,
		names.AnnotationReadinessPeriod:         checkUint32,
		names.AnnotationInterceptionMode:        checkMode,
		names.AnnotationExcludeInboundPorts:     checkPorts,
		names.AnnotationExcludeOutboundIPRanges: checkRanges,
		names.AnnotationExcludeOutboundPorts:    checkPorts,
		names.AnnotationIncludeInboundPorts:     orAll(checkPorts),
		names.AnnotationIncludeOutboundIPRanges: orAll(checkRanges),
		names.AnnotationExcludeInterfaces:       checkInterfaces,
		names.AnnotationKubevirtInterfaces:      checkInterfaces,
		names.AnnotationVirtualInterfaces:       checkInterfaces,
		names.AnnotationProxyCPU:                checkQuantity,
		names.AnnotationProxyCPULimit:           checkQuantity,
		names.AnnotationProxyMemory:             checkQuantity,
		names.AnnotationProxyMemoryLimit:        checkQuantity,
		names.AnnotationUserVolume:              checkVolumes,
		names.AnnotationUserVolumeMount:         checkVolumes,
		mergeAnnotation:                         checkBool,
		statusPortAnnotation:                    checkPort,
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if value, ok := annotations[name]; ok {
			if err := checks[name](value); err != nil {
				wrong = append(wrong, badAnnotation(name, value, err))
			}
		}
	}
	return errors.Join(wrong...)
}

// unusable returns warnings about annotations whose values have no effect or an unintended one. Unlike the faults that
// checkAnnotations finds, they do not refuse the pod.
func unusable(annotations map[string]string) (warnings []string) {
	for name, check := range map[string]func(string) error{
		rewriteAnnotation:                    checkBool,
		names.AnnotationNativeSidecar:        checkWord,
		names.AnnotationProxyImage:           checkImage,
		names.AnnotationIncludeOutboundPorts: orAll(checkPorts),
	} {
		if value, ok := annotations[name]; ok {
			if err := check(value); err != nil {
				warnings = append(warnings, fmt.Sprintf("annotation %s has the value %s, which is not valid: %v", name, quoted(value), err))
			}
		}
	}
	slices.Sort(warnings)
	return warnings
}

func checkBool(v string) error {
	if _, err := strconv.ParseBool(v); err != nil {
		return errors.New(`write "true" or "false"`)
	}
	return nil
}

// checkWord is checkBool for an annotation whose value is compared with "false".
func checkWord(v string) error {
	if v != "true" && v != "false" {
		return errors.New(`write "true" or "false"`)
	}
	return nil
}

func checkImage(v string) error {
	if !strings.Contains(v, "/") {
		return errors.New("write the image with its registry, for example registry.example.org/proxyv2:1.0")
	}
	return nil
}

func checkUint32(v string) error {
	if _, err := strconv.ParseUint(v, 10, 32); err != nil {
		return errors.New("write a whole number that is not negative")
	}
	return nil
}

func checkPort(v string) error {
	if _, err := strconv.ParseUint(v, 10, 16); err != nil {
		return fmt.Errorf("%s is no port: write a number up to 65535", quoted(v))
	}
	return nil
}

func checkMode(v string) error {
	if !slices.Contains([]string{"REDIRECT", "TPROXY", "NONE"}, v) {
		return errors.New("write REDIRECT, TPROXY or NONE")
	}
	return nil
}

var interfaceName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,14}$`)

func checkInterfaces(v string) error {
	if v == "" {
		return nil
	}
	for name := range strings.SplitSeq(v, ",") {
		if !interfaceName.MatchString(strings.TrimSpace(name)) {
			return fmt.Errorf("%s is no name of an interface: write names with commas between, for example eth1,net1", quoted(name))
		}
	}
	return nil
}

func checkQuantity(v string) error {
	if _, err := resource.ParseQuantity(v); err != nil {
		return errors.New("write a quantity as Kubernetes has them, for example 100m or 128Mi")
	}
	return nil
}

// checkVolumes returns an error unless a text is a JSON object or list of volumes or of mounts. An empty text is valid.
func checkVolumes(v string) error {
	if v == "" {
		return nil
	}
	var named map[string]map[string]any
	var list []map[string]any
	if err := json.Unmarshal([]byte(v), &list); err != nil {
		if err := json.Unmarshal([]byte(v), &named); err != nil {
			return fmt.Errorf(`write JSON by name, for example {"certs":{...}}: %w`, err)
		}
	}
	return nil
}

// orAll returns a check that also allows a star, which stands for all.
func orAll(check func(string) error) func(string) error {
	return func(v string) error {
		if v == "*" {
			return nil
		}
		return check(v)
	}
}

func checkPorts(v string) error {
	if v == "" {
		return nil
	}
	for p := range strings.SplitSeq(v, ",") {
		if err := checkPort(strings.TrimSpace(p)); err != nil {
			return err
		}
	}
	return nil
}

func checkRanges(v string) error {
	if v == "" {
		return nil
	}
	for r := range strings.SplitSeq(v, ",") {
		if _, err := netip.ParsePrefix(r); err != nil {
			return fmt.Errorf("%s is no range: write CIDRs with commas between, for example 10.0.0.0/8: %w", quoted(r), err)
		}
	}
	return nil
}
