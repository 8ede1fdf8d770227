// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/review"
)

// The paths of the webhooks, as the manifest has them.
const (
	PolicyPath = "/validate/accesspolicy"
	TenantPath = "/validate/edgetenant"

	claims  = "claims" // index of tenants
	patient = 3 * time.Second
)

// Kinds are those that are reviewed.
func Kinds() []string { return []string{v1alpha1.KindAccessPolicy, v1alpha1.KindEdgeTenant} }

// Reviews is the part of every feature that judges our kinds: ranges must get into every cluster.
func Reviews(ranges []string) Feature {
	return Feature{Name: "reviews", Add: func(ctx context.Context, h Host) error {
		platform, err := review.NewPlatform(ranges)
		if err != nil {
			return err
		}
		if err := h.GetFieldIndexer().IndexField(ctx, &objects.EdgeTenant{}, claims, func(o client.Object) []string {
			t := o.(*objects.EdgeTenant)
			return review.Claims(v1alpha1.EdgeTenant{Metadata: v1alpha1.ObjectName{Name: t.Name}, Spec: t.Spec})
		}); err != nil {
			return err
		}
		judge := func(path, kind string, fn func(context.Context, admission.Request) (review.Verdict, error)) {
			h.GetWebhookServer().Register(path, &admission.Webhook{Handler: admission.HandlerFunc(
				func(ctx context.Context, r admission.Request) admission.Response {
					v, err := fn(ctx, r)
					if err != nil {
						f := refused("others cannot be looked at", err)
						h.Reviews.WithLabelValues(kind, telemetry.Outcome(f.Code)).Inc()
						return admission.Errored(http.StatusServiceUnavailable, f)
					}
					code := fault.Code("")
					if len(v.Refused) > 0 {
						code = fault.CodeConfig
					}
					h.Reviews.WithLabelValues(kind, telemetry.Outcome(code)).Inc()
					return answer(kind, r.Name, v)
				})})
		}
		judge(PolicyPath, v1alpha1.KindAccessPolicy,
			func(_ context.Context, r admission.Request) (review.Verdict, error) {
				return review.Policy(r.Object.Raw, platform), nil
			})
		judge(TenantPath, v1alpha1.KindEdgeTenant,
			func(ctx context.Context, r admission.Request) (review.Verdict, error) {
				ctx, cancel := context.WithTimeout(ctx, patient)
				defer cancel()
				var failed error
				v := review.Tenant(r.Object.Raw, r.OldObject.Raw, func(claim string) string {
					by, err := holder(ctx, h.GetClient(), claim, r)
					if err != nil {
						failed = err
					}
					return by
				})
				return v, failed
			})
		return nil
	}}
}

// holder is another tenant that has a claim, as namespace/name.
func holder(ctx context.Context, c client.Reader, claim string, r admission.Request) (string, error) {
	var list objects.EdgeTenantList
	if err := c.List(ctx, &list, client.MatchingFields{claims: claim}); err != nil {
		return "", err
	}
	for _, t := range list.Items {
		if t.Namespace != r.Namespace || t.Name != r.Name {
			return t.Namespace + "/" + t.Name, nil
		}
	}
	return "", nil
}

// answer is what the API server hands on to who wrote the object: each field as a cause.
func answer(kind, name string, v review.Verdict) admission.Response {
	out := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: len(v.Refused) == 0, Warnings: v.Warnings,
	}}
	if out.Allowed {
		return out
	}
	s := &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		Details: &metav1.StatusDetails{Group: objects.GroupVersion().Group, Kind: kind, Name: name},
		Message: kind + " " + name + " is invalid:",
	}
	for _, f := range v.Refused {
		s.Message += "\n  " + f.Path + ": " + f.Message
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: f.Path, Message: f.Message,
		})
	}
	out.Result = s
	return out
}
