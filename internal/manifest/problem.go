// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// problems collects what is wrong with a set of options.
type problems []string

// add reports a problem with the option, named as its flag is.
func (p *problems) add(option, format string, args ...any) {
	*p = append(*p, "--"+option+": "+fmt.Sprintf(format, args...))
}

// fault is nil if there are no problems, else one fault that lists them all.
func (p problems) fault(command string) error {
	if len(p) == 0 {
		return nil
	}
	why := p[0]
	if len(p) > 1 {
		why = "\n  " + strings.Join(p, "\n  ")
	}
	return fault.New(fault.CodeUsage, "the manifest cannot be made").Whyf("%s", why).
		Hint("see 'tombolo %s --help'", command)
}

// common checks the options that all components share, and returns the parsed ones.
func (p *problems) common(c Common) (selector map[string]string, tolerations []toleration) {
	p.label("namespace", c.Namespace, 63)
	// A StatefulSet's pods carry its name and an 11-character hash in one label of at most 63.
	p.label("name", c.Name, 52)
	p.image("image", c.Image)
	p.oneOf("image-pull-policy", c.ImagePullPolicy, "Always", "IfNotPresent", "Never")
	p.oneOf("log-level", c.LogLevel, "debug", "info", "warn", "error")
	p.optionalName("image-pull-secret", c.ImagePullSecret)
	p.optionalName("priority-class", c.PriorityClass)
	p.optionalName("storage-class", c.StorageClass)
	p.quantity("cpu-request", c.CPURequest)
	p.quantity("memory-request", c.MemoryRequest)
	if c.MemoryLimit != "" {
		p.quantity("memory-limit", c.MemoryLimit)
	}
	if c.DrainTimeout < time.Second || c.DrainTimeout > time.Hour {
		p.add("drain-timeout", "%s is not between 1s and 1h", c.DrainTimeout)
	}
	for _, text := range c.NodeSelector {
		key, value, ok := strings.Cut(text, "=")
		if !ok || !isLabelKey(key) || !isLabelValue(value) {
			p.add("node-selector", "%q is not KEY=VALUE of a node label", text)
			continue
		}
		if selector == nil {
			selector = map[string]string{}
		}
		selector[key] = value
	}
	for _, text := range c.Tolerations {
		t, err := parseToleration(text)
		if err != nil {
			p.add("toleration", "%v", err)
			continue
		}
		tolerations = append(tolerations, t)
	}
	return selector, tolerations
}

// label accepts an RFC 1123 label of at most limit characters.
func (p *problems) label(option, s string, limit int) {
	switch {
	case s == "":
		p.add(option, "is missing")
	case len(s) > limit:
		p.add(option, "%q has %d characters, at most %d are allowed", s, len(s), limit)
	case !isLabel(s):
		p.add(option, "%q: a-z, 0-9 and '-' are allowed, '-' neither first nor last", s)
	}
}

// optionalName accepts an empty text, or a name valid for most Kubernetes objects.
func (p *problems) optionalName(option, s string) {
	if s != "" && !isSubdomain(s) {
		p.add(option, "%q is not the name of a Kubernetes object", s)
	}
}

func (p *problems) oneOf(option, s string, allowed ...string) {
	for _, a := range allowed {
		if s == a {
			return
		}
	}
	p.add(option, "%q is not one of %s", s, strings.Join(allowed, ", "))
}

// image accepts [HOST[:PORT]/]PATH[:TAG][@DIGEST]; whether it exists shows when the pod
// starts.
func (p *problems) image(option, s string) {
	if s == "" {
		p.add(option, "is missing")
		return
	}
	repository, digest, _ := strings.Cut(s, "@")
	if slash := strings.LastIndexByte(repository, '/'); strings.LastIndexByte(repository, ':') > slash {
		tag := repository[strings.LastIndexByte(repository, ':')+1:]
		repository = strings.TrimSuffix(repository, ":"+tag)
		if !isTag(tag) {
			p.add(option, "%q has a malformed tag", s)
			return
		}
	}
	ok := len(s) <= 512 && repository != "" && only(repository, "abcdefghijklmnopqrstuvwxyz0123456789._-/:")
	for part := range strings.SplitSeq(repository, "/") {
		ok = ok && part != "" && isAlnum(part[0]) && isAlnum(part[len(part)-1])
	}
	if digest != "" || strings.HasSuffix(s, "@") {
		hex, isSHA := strings.CutPrefix(digest, "sha256:")
		ok = ok && isSHA && len(hex) == 64 && only(hex, "0123456789abcdef")
	}
	if !ok {
		p.add(option, "%q is not the name of an image", s)
	}
}

// quantity accepts what Kubernetes writes itself, such as 50m, 2, 64Mi, 1.5Gi.
func (p *problems) quantity(option, s string) {
	number := s
	for _, suffix := range []string{"m", "k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti"} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			number = rest
		}
	}
	whole, part, dot := strings.Cut(number, ".")
	if whole == "" || !only(whole, digits) || dot && part == "" || !only(part, digits) ||
		strings.Trim(number, "0.") == "" {
		p.add(option, "%q is not a quantity such as 50m or 64Mi", s)
	}
}

// hostPath accepts an absolute directory in its shortest spelling.
func (p *problems) hostPath(option, s string) {
	if !path.IsAbs(s) || path.Clean(s) != s || s == "/" || hasControl(s) || strings.Contains(s, ":") {
		p.add(option, "%q is not the absolute, clean path of a directory", s)
	}
}
