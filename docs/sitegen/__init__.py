"""Pages of the site that are made from code, schemas, reports and the normative text."""
