"""CDK constructs that synthesise an app from its plan. Needs the extra `cdk`."""
