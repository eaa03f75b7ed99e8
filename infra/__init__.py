"""The CDK stacks of this repository: the order pipeline in one stage."""
